// Package archtest holds the rules that the tree keeps about itself: which
// package may import which, how long a function may grow, what must carry a
// comment. Its test reads the sources of every package and fails on the first
// run after a rule was broken, so that the drawing in doc/DESIGN.md stays true.
//
// A rule is a function from a source, a folder or a text to findings. It reads
// syntax only, so files behind build tags and modules nested in the tree are
// judged like all others, and a package that does not exist yet breaks nothing.
package archtest
