//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package store

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock, two processes could share a folder.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("store: files cannot be locked on this system")
}
