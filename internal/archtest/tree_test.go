package archtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headgate-mcp/headgate/internal/archtest"
)

// TestTree applies every rule to the tree that this file stands in.
func TestTree(t *testing.T) {
	root, err := archtest.Root()
	require.NoError(t, err)
	tree, err := archtest.Load(root)
	require.NoError(t, err)
	require.NotEmpty(t, tree.Sources, "no sources found: the rules would hold of nothing")

	rules := map[string]func() []string{
		"imports follow the arrows":              func() []string { return each(tree.Sources, archtest.Arrows) },
		"folders have names that mean something": func() []string { return each(tree.Folders, archtest.FolderName) },
		"packages have a doc.go":                 func() []string { return undocumentedPackages(tree) },
		"exported names have a doc comment":      func() []string { return each(tree.Sources, publicDocs) },
		"functions and files stay short":         func() []string { return each(tree.Sources, archtest.Sizes) },
		"no init functions":                      func() []string { return each(tree.Sources, archtest.NoInit) },
		"no paths of one machine":                func() []string { return each(tree.Texts, archtest.MachinePaths) },
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, finding := range rule() {
				t.Error(finding)
			}
		})
	}
}

func each[T any](items []T, rule func(T) []string) []string {
	var found []string
	for _, item := range items {
		found = append(found, rule(item)...)
	}
	return found
}

func publicDocs(s *archtest.Source) []string {
	if !archtest.IsPublic(s.Folder()) {
		return nil
	}
	return archtest.ExportedDocs(s)
}

func undocumentedPackages(tree *archtest.Tree) []string {
	var found []string
	for folder, sources := range tree.Packages() {
		found = append(found, archtest.PackageDoc(folder, sources)...)
	}
	return found
}

// TestLoad checks what the tree takes in, since a rule holds only of what was
// read.
func TestLoad(t *testing.T) {
	root := t.TempDir()
	write(t, root, "go.mod", "module "+archtest.Module+"\n")
	write(t, root, "core/core.go", "package core\n")
	write(t, root, "core/testdata/broken.go", "not Go\n")
	write(t, root, "core/tagged.go", "//go:build headgatecheck\n\npackage core\n")
	write(t, root, "e2e/node_modules/p/p.go", "not Go either\n")
	write(t, root, "promcheck/go.mod", "module "+archtest.Module+"/promcheck\n")
	write(t, root, "promcheck/check.go", "package promcheck\n")
	write(t, root, "logo.png", "\x89PNG\x00")

	tree, err := archtest.Load(root)
	require.NoError(t, err)
	nested := map[string]bool{}
	for _, s := range tree.Sources {
		nested[s.Path] = s.Nested
	}
	require.Equal(t, map[string]bool{"core/core.go": false, "core/tagged.go": false, "promcheck/check.go": true}, nested)
	var texts []string
	for _, text := range tree.Texts {
		texts = append(texts, text.Path)
	}
	require.Contains(t, texts, "core/testdata/broken.go")
	require.NotContains(t, texts, "logo.png")
	require.NotContains(t, tree.Folders, "e2e/node_modules")
}
