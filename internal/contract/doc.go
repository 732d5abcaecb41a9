// Package contract holds what the tests of package admin say and hear against
// admin/openapi.json. It is a module of its own, since the validator takes
// minutes to compile.
package contract
