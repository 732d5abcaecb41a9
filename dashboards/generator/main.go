package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", "..", "`folder` to write to")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "generator:", err)
		os.Exit(1)
	}
}

// write writes the dashboards of both flavours, each to a folder of its own.
func write(dir string) error {
	files, err := files()
	if err != nil {
		return err
	}
	for name, raw := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files makes all files, by name.
func files() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, f := range flavours() {
		for _, b := range boards(f) {
			d, err := b.build(f)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", b.uid, f.name, err)
			}
			raw, err := json.MarshalIndent(d, "", "  ")
			if err != nil {
				return nil, err
			}
			out[filepath.Join(f.name, fileName(b.uid))] = append(raw, '\n')
		}
	}
	return out, nil
}

// fileName is a board's file: what comes after the product's name.
func fileName(uid string) string { return uid[len("headgate-"):] + ".json" }
