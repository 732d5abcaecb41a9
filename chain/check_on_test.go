//go:build headgatecheck

package chain_test

const writesAreChecked = true
