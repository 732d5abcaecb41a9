// Command report measures all cases of package bench and prints them as a
// table: `make bench`. With --pictures it draws what doc/PERFORMANCE.md shows.
package main
