package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate-mcp/headgate/dashboards"
)

// dashboardsCommand is the command headgate dashboards.
func dashboardsCommand(_ context.Context, args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet("headgate dashboards", flag.ContinueOnError)
	set.SetOutput(stderr)
	out := set.String("out", "", "`folder` to write to, which is made if need be")
	flavour := set.String("flavour", dashboards.Classic, "classic or native: the `kind` of histograms that are scraped")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case *out == "" || set.NArg() > 0:
		set.Usage()
		return exitUsage
	}
	boards, err := dashboards.Files(*flavour)
	if err != nil {
		fmt.Fprintln(stderr, "headgate dashboards:", err)
		return exitUsage
	}
	if err := errors.Join(copyTo(*out, boards, stdout), copyTo(filepath.Join(*out, "rules"), dashboards.Rules(), stdout)); err != nil {
		fmt.Fprintln(stderr, "headgate dashboards:", err)
		return exitFailure
	}
	return exitOK
}

// copyTo writes files to a folder and says which.
func copyTo(dir string, files fs.FS, stdout io.Writer) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		fmt.Fprintln(stdout, to)
		return os.WriteFile(to, raw, 0o644)
	})
}
