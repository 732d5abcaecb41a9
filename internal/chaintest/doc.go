// Package chaintest holds the one behaviour suite that every kind of host must
// pass, so that the fast way to an interceptor is proved equal to the way over
// the wire. A row number is that of the table of edge cases which
// doc/CONFORMANCE.md lists.
package chaintest
