package admin_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/headgate-mcp/headgate/admin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func jsonInto(raw []byte, v any) error { return json.Unmarshal(raw, v) }

// The way of an incident (A14): a policy blocks, is turned to audit, lets pass,
// and blocks again when the override is taken off. GET, list, metric, history and
// behaviour agree after each step.
func TestFlip(t *testing.T) {
	r := newRig(t, admin.Options{}, guard())
	require.True(t, r.denied())
	require.Equal(t, "active", r.mode("guard"))
	for _, step := range []struct {
		body   string
		mode   string
		denied bool
	}{
		{`{"mode":"audit","ttl":"2h",` + why + `}`, "audit", false},
		{`{"mode":"off","ttl":"2h",` + why + `}`, "off", false},
		{`{"mode":"active",` + why + `}`, "active", true},
		{`{"mode":"audit","ttl":"1h",` + why + `}`, "audit", false},
	} {
		before := r.mode("guard")
		a := r.flip("guard", step.body)
		assert.Equal(t, step.mode, a.at("effective", "mode"))
		assert.Equal(t, "override", a.at("effective", "source"))
		assert.Equal(t, step.mode, r.mode("guard"))
		assert.Equal(t, step.denied, r.denied())
		last := r.last()
		assert.Equal(t, "applied", last["outcome"])
		assert.Equal(t, []any{before, step.mode}, []any{last["before"], last["after"]})
		assert.Equal(t, a.at("change", "id"), last["id"])
		assert.Equal(t, a.etag(), r.get(item("guard")).etag())
		found := r.get("/v1/changes/" + last["id"].(string))
		assert.Equal(t, last["hash"], found.at("hash"))
	}
	a := r.clear("guard", operateSecret)
	require.Equal(t, http.StatusOK, a.status, a.raw)
	require.Equal(t, "active", r.mode("guard"))
	require.True(t, r.denied())
	assert.Equal(t, "override.clear", r.last()["action"])
}
