package proof_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Faults of a road, beside cut and none.
const (
	reset     fault = "connections are reset"
	blackhole fault = "nothing arrives, and nothing says so"
	delayed   fault = "all is slow"
	shut      fault = "the far side closes its half"
)

var roadFaults = []fault{none, cut, reset, blackhole, delayed, shut}

// A road is a TCP proxy between a chain and an interceptor server that delays,
// swallows, cuts, resets and half-closes what goes over it.
type road struct {
	ln net.Listener

	mu    sync.Mutex
	to    string
	fault fault
	conns map[*net.TCPConn]bool // open; true for those to the server
	done  sync.WaitGroup
}

func newRoad(t testing.TB, to string) *road {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &road{ln: ln, to: to, conns: map[*net.TCPConn]bool{}}
	r.done.Go(r.accept)
	return r
}

func (r *road) url() string { return "http://" + r.ln.Addr().String() }

func (r *road) now() (fault, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fault, r.to
}

// lead has new connections go to another server.
func (r *road) lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

// set has a fault hold, on open connections too.
func (r *road) set(f fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
	for c, far := range r.conns {
		switch {
		case f == cut:
			_ = c.Close()
		case f == reset:
			_ = c.SetLinger(0)
			_ = c.Close()
		case f == shut && !far:
			_ = c.CloseWrite()
		}
	}
}

func (r *road) accept() {
	for {
		in, err := r.ln.Accept()
		if err != nil {
			return
		}
		f, to := r.now()
		if f == cut || f == reset {
			if f == reset {
				_ = in.(*net.TCPConn).SetLinger(0)
			}
			_ = in.Close()
			continue
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			continue
		}
		a, b := in.(*net.TCPConn), out.(*net.TCPConn)
		r.mu.Lock()
		r.conns[a], r.conns[b] = false, true
		r.mu.Unlock()
		r.done.Go(func() { r.carry(a, b) })
		r.done.Go(func() { r.carry(b, a) })
	}
}

// carry takes bytes one way until an end closes.
func (r *road) carry(from, to *net.TCPConn) {
	defer r.drop(from)
	defer r.drop(to)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		switch f, _ := r.now(); f {
		case blackhole:
			n = 0
		case delayed:
			time.Sleep(guardTimeout / 3)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *road) drop(c *net.TCPConn) {
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
	_ = c.Close()
}

func (r *road) close() {
	_ = r.ln.Close()
	r.set(cut)
	r.done.Wait()
}
