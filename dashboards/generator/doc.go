// The generator writes the dashboards of Headgate, in two flavours from one
// source: one for classic buckets, one for native histograms. Run it with
//
//	go generate ./dashboards
package main
