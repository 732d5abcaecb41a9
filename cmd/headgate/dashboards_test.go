package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-mcp/headgate/dashboards"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is written is what is embedded, and each file is named.
func TestDashboardsAreWritten(t *testing.T) {
	for name, args := range map[string][]string{
		dashboards.Classic: nil,
		dashboards.Native:  {"--flavour", "native"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "not", "there", "yet")
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"dashboards", "--out", dir}, args...), &stdout, &stderr)
			require.Equal(t, exitOK, code, stderr.String())
			assert.Empty(t, stderr.String())

			boards, err := dashboards.Files(name)
			require.NoError(t, err)
			want := contents(t, boards, "")
			require.Len(t, want, 3)
			for path, text := range contents(t, dashboards.Rules(), "rules/") {
				want[path] = text
			}
			require.Contains(t, want, "rules/alerts.yaml")
			assert.Equal(t, want, contents(t, os.DirFS(dir), ""))
			assert.ElementsMatch(t, paths(dir, want), strings.Fields(stdout.String()))
		})
	}
}

// contents maps the names of all files, behind a prefix, to what is in them.
func contents(t *testing.T, files fs.FS, prefix string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(files, path)
		all[prefix+path] = string(raw)
		return err
	}))
	return all
}

func paths(dir string, files map[string]string) (all []string) {
	for name := range files {
		all = append(all, filepath.Join(dir, filepath.FromSlash(name)))
	}
	return all
}

func TestDashboardsCannotBeWritten(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(taken, nil, 0o600))
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"help":               {[]string{"-h"}, exitOK, "-flavour"},
		"no folder":          {nil, exitUsage, "-out"},
		"an argument":        {[]string{"--out", taken, "more"}, exitUsage, "-out"},
		"an unknown flag":    {[]string{"--no-such"}, exitUsage, "no-such"},
		"an unknown flavour": {[]string{"--out", t.TempDir(), "--flavour", "sparse"}, exitUsage, "classic and native"},
		"a file in its way":  {[]string{"--out", taken}, exitFailure, taken},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"dashboards"}, tt.args...), &stdout, &stderr)
			assert.Equal(t, tt.code, code)
			assert.Empty(t, stdout.String())
			assert.Contains(t, stderr.String(), tt.says)
		})
	}
}
