package admin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
)

// A hostList says under which names the plane may be reached. A page whose name
// was made to point here (DNS rebinding) has another.
type hostList struct {
	mu    sync.RWMutex
	names map[string]bool
}

func newHostList(names []string) *hostList {
	l := &hostList{names: map[string]bool{"localhost": true}}
	for _, n := range names {
		l.names[canonicalHost(n)] = true
	}
	return l
}

// bind lets the address in that is listened on.
func (l *hostList) bind(addr net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := addr.(*net.TCPAddr); ok && !a.IP.IsUnspecified() {
		l.names[canonicalHost(a.IP.String())] = true
	}
}

// allows reports whether a request's Host is one of the names. On a Unix socket,
// which no browser reaches, any is.
func (l *hostList) allows(r *http.Request) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr); ok && addr != nil {
		return true
	}
	name := canonicalHost(r.Host)
	if name == "" {
		return false
	}
	if addr, err := netip.ParseAddr(name); err == nil && addr.IsLoopback() {
		return true
	}
	return l.names[name]
}

// canonicalHost returns the name in a Host header without port, in lower case
// and without the dot of the root; empty if it is none.
func canonicalHost(host string) string {
	name := host
	if strings.HasPrefix(host, "[") { // an IPv6 address, perhaps with a port
		end := strings.IndexByte(host, ']')
		if end < 0 || !isPort(host[end+1:]) {
			return ""
		}
		name = host[1:end]
		addr, err := netip.ParseAddr(name)
		if err != nil || !addr.Is6() {
			return ""
		}
		return addr.WithZone("").String()
	}
	if strings.Count(host, ":") == 1 {
		var port string
		name, port, _ = strings.Cut(host, ":")
		if !isPort(":" + port) {
			return ""
		}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.WithZone("").String()
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if name == "" || strings.ContainsAny(name, "/\\@?# \t\r\n%,:") || strings.Contains("."+name+".", "..") {
		return ""
	}
	return name
}

func isPort(s string) bool {
	if s == "" {
		return true
	}
	if s[0] != ':' || len(s) > 6 {
		return false
	}
	for _, r := range s[1:] {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}

// crossSite reports whether a request was made by another site's page. Those
// that are not made by browsers have none of these headers; for them tokens are
// what counts.
func crossSite(r *http.Request) bool {
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return true // same-site too: a neighbour is not this plane
		}
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return false
	}
	if len(origins) > 1 {
		return true
	}
	u, err := url.Parse(origins[0])
	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}
