package main

import (
	"bytes"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRunCommands(t *testing.T) {
	for name, tt := range map[string]struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		"nothing":                     {nil, exitUsage, "", "Usage:"},
		"help":                        {[]string{"help"}, exitOK, "Usage:", ""},
		"the flag for help":           {[]string{"-h"}, exitOK, "Usage:", ""},
		"version":                     {[]string{"version"}, exitOK, "headgate ", ""},
		"an unknown command":          {[]string{"dmo"}, exitUsage, "", `unknown command "dmo"`},
		"demo's help":                 {[]string{"demo", "-h"}, exitOK, "", "-traffic"},
		"demo with an unknown flag":   {[]string{"demo", "--no-such"}, exitUsage, "", "no-such"},
		"demo with an argument":       {[]string{"demo", "now"}, exitUsage, "", `unexpected argument "now"`},
		"demo with negative traffic":  {[]string{"demo", "--traffic", "-1"}, exitUsage, "", "--traffic"},
		"demo with traffic no number": {[]string{"demo", "--traffic", "NaN"}, exitUsage, "", "--traffic"},
		"demo with endless traffic":   {[]string{"demo", "--traffic", "Inf"}, exitUsage, "", "--traffic"},
		"demo with hardly any":        {[]string{"demo", "--traffic", "1e-300"}, exitUsage, "", "--traffic"},
		"demo for less than no time":  {[]string{"demo", "--for", "-1s"}, exitUsage, "", "--for"},
		"demo at no address":          {[]string{"demo", "--mcp", "nowhere"}, exitFailure, "", "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tt.args, &stdout, &stderr)
			assert.Equal(t, tt.code, code)
			assert.Contains(t, stdout.String(), tt.stdout)
			assert.Contains(t, stderr.String(), tt.stderr)
			if tt.stdout == "" {
				assert.Empty(t, stdout.String())
			}
			if tt.stderr == "" {
				assert.Empty(t, stderr.String())
			}
		})
	}
}

func TestRunAddressTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"demo", "--mcp", ln.Addr().String()}, &stdout, &stderr)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr.String(), "address already in use")
	assert.Contains(t, stderr.String(), ln.Addr().String())
	assert.Empty(t, stdout.String())
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
