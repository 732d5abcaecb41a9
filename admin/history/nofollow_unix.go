//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package history

import "syscall"

// noFollow has opening a link fail.
const noFollow = syscall.O_NOFOLLOW
