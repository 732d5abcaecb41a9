// Package doctest holds the documents to the code: what they show is compiled,
// what they name exists, and where they link to is there.
package doctest
