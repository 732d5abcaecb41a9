//go:build headgatecheck

package middleware

// checkScratch has encoders' scratch written over when it is put back.
const checkScratch = true
