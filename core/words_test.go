package core_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/core"
)

// Case S11.
func TestMode(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string // as JSON
		want core.Mode
	}{
		"active":                       {`"active"`, core.ModeActive},
		"audit":                        {`"audit"`, core.ModeAudit},
		"the older word enforce":       {`"enforce"`, core.ModeActive},
		"empty, as older Go writes it": {`""`, core.ModeActive},
		"a capital letter is refused":  {`"Active"`, ""},
		"a typing error is refused":    {`"aduit"`, ""},
		"a blank is refused":           {`"audit "`, ""},
		"off exists in overrides only": {`"off"`, ""},
		"null is refused":              {`null`, ""},
		"a number is refused":          {`1`, ""},
		"a boolean is refused":         {`true`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got struct{ Mode core.Mode }
			err := json.Unmarshal([]byte(`{"Mode":`+tt.in+`}`), &got)
			assert.Equal(t, tt.want == "", err != nil, "error: %v", err)
			assert.Equal(t, tt.want, got.Mode)
		})
	}
}

func TestErrorsQuoteLittle(t *testing.T) {
	_, err := core.ParseMode(strings.Repeat("x", 1<<20) + "\n")
	require.Error(t, err)
	assert.Less(t, len(err.Error()), 200)
	assert.NotContains(t, err.Error(), "\n")
}

func TestWordsAreClosed(t *testing.T) {
	for _, p := range []core.Phase{core.PhaseRequest, core.PhaseResponse} {
		assert.True(t, p.Valid(), p)
	}
	for _, p := range []core.Phase{"", core.PhaseBoth, "Request", "bogus"} {
		assert.False(t, p.Valid(), p)
	}
	for _, d := range []core.Direction{core.Receiving, core.Sending} {
		assert.True(t, d.Valid(), d)
	}
	for _, d := range []core.Direction{"", "both"} {
		assert.False(t, d.Valid(), d)
	}
	for _, s := range []core.Severity{core.SeverityInfo, core.SeverityWarn, core.SeverityError} {
		assert.True(t, s.Valid(), s)
	}
	for _, s := range []core.Severity{"", "fatal", "ERROR", "warning"} {
		assert.False(t, s.Valid(), s)
	}
}
