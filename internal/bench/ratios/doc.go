// Command ratios fails when something has come to cost more beside its
// reference than it used to: `make ratios`.
package main
