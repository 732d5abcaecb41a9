//go:build headgatecheck

package chain

// checkWrites gives each validator a buffer of its own and compares it
// afterwards, so that one which writes to its payload is named.
const checkWrites = true
