// Package store keeps what an admin plane has been told, over restarts.
//
// A [Store] keeps records under keys, each with the revision at which it was
// last written. [Memory] forgets, [File] keeps them in one file of one process.
// A distributed one fits behind the same interface: it allocates the revisions,
// and says so when somebody else was first.
package store
