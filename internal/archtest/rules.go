package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Sizes that code other than tests keeps to. What outgrows them wants a name
// of its own.
const (
	MaxFuncLines = 60
	MaxFileLines = 400
)

// FolderName finds folders that say nothing about what they hold.
func FolderName(folder string) []string {
	switch path.Base(folder) {
	case "util", "utils", "common", "helper", "helpers":
		return []string{folder + ": the name says nothing; name it after what it holds"}
	}
	return nil
}

// PackageDoc finds packages without a doc.go that holds a package comment.
// Examples explain themselves where they start, and a folder of tests alone
// offers nothing to explain.
func PackageDoc(folder string, sources []*Source) []string {
	isTest := func(s *Source) bool { return s.IsTest() }
	if within(folder, "cmd/examples") || !slices.ContainsFunc(sources, func(s *Source) bool { return !isTest(s) }) {
		return nil
	}
	for _, s := range sources {
		if path.Base(s.Path) == "doc.go" && strings.TrimSpace(s.File.Doc.Text()) != "" {
			return nil
		}
	}
	return []string{folder + ": no doc.go with a package comment"}
}

// IsPublic reports whether users of the library see the package in folder.
func IsPublic(folder string) bool {
	if slices.Contains(strings.Split(folder, "/"), "internal") {
		return false
	}
	top, _, _ := strings.Cut(folder, "/")
	return slices.Contains([]string{"core", "chain", "mcpext", "middleware", "telemetry", "admin"}, top)
}

// ExportedDocs finds exported declarations without a doc comment. In a group
// of constants or variables the comment over the group counts for each.
func ExportedDocs(s *Source) []string {
	if s.IsTest() {
		return nil
	}
	var found []string
	for _, decl := range s.File.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
				found = append(found, s.finding(d.Pos(), "exported %s has no doc comment", d.Name.Name))
			}
		case *ast.GenDecl:
			for _, name := range undocumented(d) {
				found = append(found, s.finding(name.Pos(), "exported %s has no doc comment", name.Name))
			}
		}
	}
	return found
}

func undocumented(d *ast.GenDecl) []*ast.Ident {
	var bare []*ast.Ident
	for _, spec := range d.Specs {
		switch sp := spec.(type) {
		case *ast.TypeSpec:
			if sp.Doc == nil && (d.Doc == nil || d.Lparen.IsValid()) {
				bare = append(bare, sp.Name)
			}
		case *ast.ValueSpec:
			if d.Doc == nil && sp.Doc == nil && sp.Comment == nil {
				bare = append(bare, sp.Names...)
			}
		}
	}
	return slices.DeleteFunc(bare, func(n *ast.Ident) bool { return !n.IsExported() })
}

// exportedReceiver reports whether d is a function, or a method that users can
// reach by its type's name.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// Sizes finds functions and files that grew too long. Tests, the peers in
// internal that serve only tests, and generated files may.
func Sizes(s *Source) []string {
	if s.IsTest() || strings.HasPrefix(s.Path, "internal/") || ast.IsGenerated(s.File) {
		return nil
	}
	var found []string
	if n := s.line(s.File.FileEnd); n > MaxFileLines {
		found = append(found, fmt.Sprintf("%s: %d lines, at most %d", s.Path, n, MaxFileLines))
	}
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			if lines := s.line(n.End()) - s.line(n.Pos()) + 1; lines > MaxFuncLines {
				found = append(found, s.finding(n.Pos(), "function of %d lines, at most %d", lines, MaxFuncLines))
			}
		}
		return true
	})
	return found
}

// NoInit finds init functions: importing a package must have no effect.
func NoInit(s *Source) []string {
	var found []string
	for _, decl := range s.File.Decls {
		if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
			found = append(found, s.finding(d.Pos(), "init function; do it in a constructor"))
		}
	}
	return found
}

// MachinePaths finds absolute paths of the machine that a text was written on.
// They mean nothing to whoever checks the tree out elsewhere.
func MachinePaths(t Text) []string {
	// The pattern is put together so that this file does not match it.
	pattern := regexp.MustCompile(`(?:^|[^\w.~-])/(?:wo` + `rk|ro` + `ot)/`)
	var found []string
	n := 0
	for line := range strings.Lines(string(t.Data)) {
		n++
		if pattern.MatchString(line) {
			found = append(found, fmt.Sprintf("%s:%d: path of one machine", t.Path, n))
		}
	}
	return found
}
