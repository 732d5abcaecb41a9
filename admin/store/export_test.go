package store

// What the tests of this package reach into it for.
var (
	Decode = decode
	Encode = encode
)
