// Package breaker opens a circuit for each interceptor that keeps failing, so that
// messages stop paying for it: its calls then fail at once, and failOpen decides.
//
//	b := breaker.New(nil)
//	ch, err := ext.Chain(&chain.Options{Gate: b})
//
// A denial is no failure. After a while one call is let through to see whether the
// interceptor is well again.
package breaker
