package mcpext_test

import (
	"encoding/json"
	"sync"
	"testing"

	"github.com/headgate-mcp/headgate/core"
	ct "github.com/headgate-mcp/headgate/internal/chaintest"
	"github.com/headgate-mcp/headgate/mcpext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func on(name string, events ...string) core.Interceptor {
	return ct.Validator(name, ct.Allow, ct.On(core.PhaseBoth, events...))
}

// extensions does a handshake of the era and returns the capabilities'
// extensions byte for byte.
func extensions(t *testing.T, server *mcp.Server, version string) string {
	t.Helper()
	p := &peer{}
	var line string
	if version == legacy {
		p = dial(t, server, "")
		line = p.ask("initialize", `{"protocolVersion":"`+legacy+`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`)
	} else {
		p = dial(t, server, modern)
		line = p.ask("server/discover", "")
	}
	var res struct {
		Capabilities struct{ Extensions json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(p.result(line)), &res))
	return string(res.Capabilities.Extensions)
}

func declares(events string) string {
	return `{"io.modelcontextprotocol/interceptors":{"supportedEvents":` + events + `}}`
}

// Row 98: both handshakes declare the capability, as it is at that time, on
// all servers.
func TestCapability(t *testing.T) {
	ext, one := host(t, nil, on("b", "tools/list", "tools/call"), on("a", "*", "tools/call", "prompts/get"))
	two := mcp.NewServer(&mcp.Implementation{Name: "two"}, nil)
	require.NoError(t, ext.Install(two))
	for _, version := range []string{modern, legacy} {
		for name, server := range map[string]*mcp.Server{"one": one, "two": two} {
			t.Run(name+" "+version, func(t *testing.T) {
				assert.Equal(t, declares(`["*","prompts/get","tools/call","tools/list"]`), extensions(t, server, version), "sorted, each once")
				require.NoError(t, ext.AddInterceptor(on("late", "vendor/x")))
				assert.Equal(t, declares(`["*","prompts/get","tools/call","tools/list","vendor/x"]`), extensions(t, server, version))
				ext.RemoveInterceptor("late")
				assert.Equal(t, declares(`["*","prompts/get","tools/call","tools/list"]`), extensions(t, server, version))
			})
		}
	}
}

func TestCapabilityOfAnEmptyExtension(t *testing.T) {
	_, server := host(t, nil)
	for _, version := range []string{modern, legacy} {
		assert.Equal(t, declares(`[]`), extensions(t, server, version), "a list, not null")
	}
}

// What the server's owner declares stays, and his value is not written to.
func TestCapabilityBesideOthers(t *testing.T) {
	caps := &mcp.ServerCapabilities{}
	caps.AddExtension("com.example/audit", map[string]any{"level": "full"})
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, &mcp.ServerOptions{Capabilities: caps})
	ext := mcpext.New(nil)
	require.NoError(t, ext.Install(server))
	for _, version := range []string{modern, legacy} {
		assert.JSONEq(t, `{"com.example/audit":{"level":"full"},"io.modelcontextprotocol/interceptors":{"supportedEvents":[]}}`,
			extensions(t, server, version))
	}
	assert.Len(t, caps.Extensions, 1)
}

// Handshakes that run at once meet in no map.
func TestHandshakesAtOnce(t *testing.T) {
	_, server := host(t, nil, on("a", "tools/call"))
	var wg sync.WaitGroup
	for range 8 {
		for _, version := range []string{modern, legacy} {
			wg.Go(func() { assert.Equal(t, declares(`["tools/call"]`), extensions(t, server, version)) })
		}
	}
	wg.Wait()
}

func TestInstallOnNoServer(t *testing.T) {
	require.Error(t, mcpext.New(nil).Install(nil))
}
