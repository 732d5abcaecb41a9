package history

// What the tests of this package reach into it for.
var (
	Decode = decode
	Encode = encode
)

// Break has the log write to a file that takes nothing, until the returned
// function is called.
func (l *Log) Break() (mend func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := l.file
	closed, _ := openClosed()
	l.file = closed
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.file = whole
	}
}
