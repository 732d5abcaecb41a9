// Package admin is the control plane of Headgate: it turns interceptors to
// audit, off and back over HTTP while their server runs, keeps what it was told
// over restarts, and writes down who did what and why.
//
//	plane, err := admin.New(&admin.Options{
//		Chains: map[string]*chain.Chain{"main": ch},
//		Tokens: tokens, StateDir: "/var/lib/headgate",
//	})
//	ln, err := plane.Listen("127.0.0.1:9901", nil)
//	err = plane.Serve(ctx, ln)
//
// [Plane.Handler] can be mounted in a mux of one's own instead. Nothing is open:
// without a token, or an [Authenticator] that says otherwise, the plane answers
// health checks only.
//
// What a change does is decided by package control, kept by package store and
// written down by package history.
package admin
