package dashboards

import (
	"embed"
	"errors"
	"io/fs"
)

//go:generate go -C generator run . -out ..

//go:embed classic native rules provisioning compose.yaml
var files embed.FS

// The flavours: dashboards for classic buckets, which any Prometheus has, and for
// native histograms, whose percentiles are right to within a tenth.
const (
	Classic = "classic"
	Native  = "native"
)

// ErrFlavour is returned for a flavour that there is not.
var ErrFlavour = errors.New("dashboards: the flavours are classic and native")

// Files returns the dashboards of a flavour, as JSON files.
func Files(flavour string) (fs.FS, error) {
	if flavour != Classic && flavour != Native {
		return nil, ErrFlavour
	}
	return fs.Sub(files, flavour)
}

// Rules returns the recording and alert rules, as files that Prometheus reads.
func Rules() fs.FS {
	sub, _ := fs.Sub(files, "rules") // which is there: it is embedded
	return sub
}

// Provisioning returns files that wire Prometheus, Grafana and Jaeger to a running
// Headgate, compose.yaml among them.
func Provisioning() fs.FS { return provisioning{} }

// provisioning is compose.yaml and the folder that it names.
type provisioning struct{}

// Open opens compose.yaml, or a file of provisioning.
func (provisioning) Open(name string) (fs.File, error) { return files.Open(name) }
