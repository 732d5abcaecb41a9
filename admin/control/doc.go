// Package control holds what an admin plane decides with: the layers of policy
// that an interceptor has, what holds of them at a moment, and which changes of
// them are allowed. It knows no HTTP and keeps nothing.
//
// Four layers lie over one another: declared by the author, configured by a file,
// overridden by an operator, and break-glass for all. In each field the highest
// layer that says something holds.
package control
