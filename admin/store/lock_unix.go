//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package store

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile takes an advisory lock that ends with the process, however that ends.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, perm)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = fmt.Errorf("%w: %s", ErrLocked, path)
	}
	return nil, errors.Join(err, file.Close())
}
