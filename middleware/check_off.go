//go:build !headgatecheck

package middleware

// checkScratch has encoders' scratch written over when it is put back: with the
// build tag headgatecheck.
const checkScratch = false
