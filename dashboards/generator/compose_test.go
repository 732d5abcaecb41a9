package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// A compose is compose.yaml. Keys that it does not name are refused.
type compose struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Ports       []string
		Environment map[string]string
		Volumes     []string
		ExtraHosts  []string `yaml:"extra_hosts"`
	}
}

// datasources is what Grafana is given to ask.
type datasources struct {
	APIVersion  int `yaml:"apiVersion"`
	Datasources []struct {
		Name, UID, Type, URL string
		IsDefault            bool `yaml:"isDefault"`
		JSONData             struct {
			TimeInterval string `yaml:"timeInterval"`
			Exemplars    []struct {
				Name string
				UID  string `yaml:"datasourceUid"`
			} `yaml:"exemplarTraceIdDestinations"`
		} `yaml:"jsonData"`
	}
}

// providers say where Grafana finds dashboards.
type providers struct {
	APIVersion int `yaml:"apiVersion"`
	Providers  []struct {
		Name, Folder, Type string
		Options            struct{ Path string }
	}
}

// scraping is the part of Prometheus' configuration that others rely on; all of
// it is loaded by a real one in make e2e.
type scraping struct {
	Global struct {
		Interval   string `yaml:"scrape_interval"`
		Evaluation string `yaml:"evaluation_interval"`
	}
	RuleFiles []string `yaml:"rule_files"`
	Scrape    []struct {
		Job     string                       `yaml:"job_name"`
		Native  bool                         `yaml:"scrape_native_histograms"`
		Classic bool                         `yaml:"always_scrape_classic_histograms"`
		Static  []struct{ Targets []string } `yaml:"static_configs"`
	} `yaml:"scrape_configs"`
}

// read reads a file of dashboards/ strictly.
func read[T any](t *testing.T, name string) *T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	v := new(T)
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	require.NoError(t, d.Decode(v), name)
	return v
}

const grafanaFiles = "provisioning/grafana/provisioning/"

// Whoever has Docker gets services whose files are there, by images of an exact
// tag, reached from this machine alone.
func TestCompose(t *testing.T) {
	c := read[compose](t, "compose.yaml")
	require.Len(t, c.Services, 3)
	tag := regexp.MustCompile(`^[a-z]+/[a-z]+:v?\d+\.\d+\.\d+$`)
	for name, s := range c.Services {
		require.Regexp(t, tag, s.Image, name)
		require.NotEmpty(t, s.Ports, name)
		for _, port := range s.Ports {
			require.Regexp(t, `^127\.0\.0\.1:(\d+):\d+$`, port, name)
		}
		inside := map[string]bool{}
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			require.Len(t, parts, 3, v)
			require.FileExists(t, existing(t, parts[0]), v)
			require.Equal(t, "ro", parts[2], v)
			for other := range inside { // in a folder that is read-only, none can be made
				require.False(t, strings.HasPrefix(parts[1], other+"/") || strings.HasPrefix(other, parts[1]+"/"), v)
			}
			inside[parts[1]] = true
		}
	}
	// The versions that make e2e runs these files on.
	require.Equal(t, "prom/prometheus:v3."+strings.TrimPrefix(version(t, "prometheus"), "v0.3"), c.Services["prometheus"].Image)
	// Jaeger's releases had two numbers while there was a version 1.
	require.Equal(t, "v1.76.0", version(t, "jaeger"), "which version 2 came with it?")
	require.Equal(t, "jaegertracing/jaeger:2.13.0", c.Services["jaeger"].Image)
}

// existing returns a file that stands for the path: itself, or one in the folder.
func existing(t *testing.T, path string) string {
	t.Helper()
	path = filepath.Join("..", path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	if !info.IsDir() {
		return path
	}
	found := ""
	require.NoError(t, filepath.Walk(path, func(p string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			found = p
		}
		return err
	}))
	return found
}

// version is what a module under tools is pinned to.
func version(t *testing.T, tool string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../tools", tool, "go.mod"))
	require.NoError(t, err)
	m := regexp.MustCompile(`(?m)^\s*(?:require )?github\.com/\w+/` + tool + ` (v\S+)`).FindSubmatch(raw)
	require.NotNil(t, m, tool)
	return string(m[1])
}

// What is provisioned fits together, and the dashboards.
func TestProvisioning(t *testing.T) {
	c := read[compose](t, "compose.yaml")
	sources := read[datasources](t, grafanaFiles+"datasources/datasources.yaml")
	scrape := read[scraping](t, "provisioning/prometheus/prometheus.yml")
	types := map[string]string{}
	for _, s := range sources.Datasources {
		types[s.UID] = s.Type
		host, port, ok := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
		require.True(t, ok, s.URL)
		require.Contains(t, c.Services, host)
		published := strings.Join(c.Services[host].Ports, " ") + " "
		require.Contains(t, published, ":"+port+" ", s.URL)
	}
	for _, s := range sources.Datasources {
		if s.Type != "prometheus" {
			continue
		}
		require.True(t, s.IsDefault)
		require.Equal(t, scrape.Global.Interval, s.JSONData.TimeInterval)
		require.Len(t, s.JSONData.Exemplars, 1)
		require.Equal(t, "trace_id", s.JSONData.Exemplars[0].Name, "the label that telemetry gives exemplars")
		require.Equal(t, "jaeger", types[s.JSONData.Exemplars[0].UID])
	}
	for uid, used := range sourcesUsed(t) {
		require.Regexp(t, `^\$\{datasource\}$`, uid)
		require.Equal(t, "prometheus", used)
	}
	for _, v := range variables() {
		built, err := v.Build()
		require.NoError(t, err)
		if built.Type == dashboard.VariableTypeDatasource {
			require.Contains(t, []string{"prometheus", "jaeger"}, *built.Query.String, "no such source is provisioned")
		}
	}
}

// sourcesUsed are the ids of data sources in all dashboards, with their types.
func sourcesUsed(t *testing.T) map[string]string {
	t.Helper()
	made, err := files()
	require.NoError(t, err)
	used := map[string]string{}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if source, ok := v["datasource"].(map[string]any); ok {
				used[source["uid"].(string)], _ = source["type"].(string)
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	for _, raw := range made {
		var v any
		require.NoError(t, json.Unmarshal(raw, &v))
		walk(v)
	}
	return used
}

// What the containers look for is mounted where they look.
func TestMounts(t *testing.T) {
	c := read[compose](t, "compose.yaml")
	inside := func(service, path string) string {
		for _, v := range c.Services[service].Volumes {
			parts := strings.Split(v, ":")
			if rest, ok := strings.CutPrefix(path, parts[1]); ok && (rest == "" || rest[0] == '/') {
				return filepath.Join("..", parts[0]+rest)
			}
		}
		require.Failf(t, "not mounted", "%s at %s", path, service)
		return ""
	}
	for _, arg := range c.Services["prometheus"].Command {
		if path, ok := strings.CutPrefix(arg, "--config.file="); ok {
			require.FileExists(t, inside("prometheus", path))
		}
	}
	scrape := read[scraping](t, "provisioning/prometheus/prometheus.yml")
	for _, rules := range scrape.RuleFiles {
		require.FileExists(t, inside("prometheus", "/etc/prometheus/"+rules))
	}
	require.Len(t, scrape.Scrape, 1)
	require.True(t, scrape.Scrape[0].Native && scrape.Scrape[0].Classic, "rules and dashboards ask both")
	require.Equal(t, []string{"host.docker.internal:9464"}, scrape.Scrape[0].Static[0].Targets)
	require.Contains(t, c.Services["prometheus"].ExtraHosts, "host.docker.internal:host-gateway")
	for _, kind := range []string{"datasources/datasources.yaml", "dashboards/dashboards.yaml"} {
		require.FileExists(t, inside("grafana", "/etc/grafana/provisioning/"+kind))
	}
	boards := 0
	for _, p := range read[providers](t, grafanaFiles+"dashboards/dashboards.yaml").Providers {
		require.Equal(t, "file", p.Type)
		found, err := filepath.Glob(filepath.Join(inside("grafana", p.Options.Path), "*.json"))
		require.NoError(t, err)
		boards += len(found)
	}
	require.Equal(t, 6, boards)
}
