//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package history

const noFollow = 0
