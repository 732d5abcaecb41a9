package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxText is the size above which a file counts as data, not as a source.
const maxText = 1 << 20

// A Source is one parsed Go file.
type Source struct {
	Path   string // slash-separated, from the root of the tree
	Nested bool   // it belongs to a module inside the tree, not to the root module
	File   *ast.File

	fset *token.FileSet
}

// Parse makes a Source of text.
func Parse(name string, text []byte) (*Source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("archtest: %w", err)
	}
	return &Source{Path: name, File: file, fset: fset}, nil
}

// Folder is the folder that s stands in, "." at the root.
func (s *Source) Folder() string { return path.Dir(s.Path) }

// IsTest reports whether s is a test file.
func (s *Source) IsTest() bool { return strings.HasSuffix(s.Path, "_test.go") }

func (s *Source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s *Source) finding(p token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.Path, s.line(p), fmt.Sprintf(format, args...))
}

// A Text is any file of the tree that is not binary.
type Text struct {
	Path string
	Data []byte
}

// A Tree is what [Load] found.
type Tree struct {
	Folders []string
	Sources []*Source
	Texts   []Text

	root    string
	modules []string // folders of the modules nested in the tree
}

// Root finds the root module's folder from the working folder upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("archtest: %w", err)
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.Contains(string(mod), "module "+Module+"\n") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("archtest: no go.mod of " + Module + " above the working folder")
		}
		dir = parent
	}
}

// Load reads the tree below root, without what is generated or downloaded.
func Load(root string) (*Tree, error) {
	t := &Tree{root: root}
	if err := filepath.WalkDir(root, t.visit); err != nil {
		return nil, fmt.Errorf("archtest: %w", err)
	}
	for _, s := range t.Sources {
		s.Nested = slices.ContainsFunc(t.modules, func(m string) bool { return within(s.Path, m) })
	}
	return t, nil
}

func (t *Tree) visit(file string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(t.root, file)
	if err != nil {
		return err
	}
	name := filepath.ToSlash(rel)
	switch {
	case entry.IsDir() && slices.Contains([]string{".git", ".cache", "node_modules", "bin"}, entry.Name()):
		return filepath.SkipDir
	case entry.IsDir():
		t.Folders = append(t.Folders, name)
		return nil
	case !entry.Type().IsRegular():
		return nil
	}
	return t.add(name, file)
}

func (t *Tree) add(name, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if path.Base(name) == "go.mod" && name != "go.mod" {
		t.modules = append(t.modules, path.Dir(name))
	}
	if len(data) <= maxText && !bytes.ContainsRune(data, 0) {
		t.Texts = append(t.Texts, Text{Path: name, Data: data})
	}
	if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
		return nil
	}
	s, err := Parse(name, data)
	if err != nil {
		return err
	}
	t.Sources = append(t.Sources, s)
	return nil
}

// Packages groups the sources by folder.
func (t *Tree) Packages() map[string][]*Source {
	all := make(map[string][]*Source)
	for _, s := range t.Sources {
		all[s.Folder()] = append(all[s.Folder()], s)
	}
	return all
}

// within reports whether name is folder, or lies below it.
func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}
