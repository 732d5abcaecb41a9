// Package bench measures what Headgate costs, each figure beside its reference
// and in one run: the contenders of a case take turns for several rounds, and
// medians are compared. Ratios and allocations are what its figures are good
// for; times depend on the machine and on who else uses it.
//
// [Cases] are the aims of the project. Command report prints them as a table
// and draws the pictures of doc/PERFORMANCE.md; the package's tests are the
// gate that keeps ratios in their bands, and `go test -bench` runs the same
// contenders for benchstat.
package bench
