package contract

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the module whose tests are listened to.
const root = "../.."

// An exchange is a line that those tests write.
type exchange struct {
	Test          string      `json:"test"`
	Method        string      `json:"method"`
	URL           string      `json:"url"`
	RequestHeader http.Header `json:"requestHeader"`
	RequestBody   string      `json:"requestBody"`
	Status        int         `json:"status"`
	Header        http.Header `json:"header"`
	Body          string      `json:"body"`
}

// record runs the tests of package admin and returns what they exchanged.
func record(t *testing.T) []exchange {
	t.Helper()
	depend(t)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-short", "-timeout", "5m", "./admin")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "HEADGATE_EXCHANGES="+dir, "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	file, err := os.Open(filepath.Join(dir, "exchanges.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	var list []exchange
	in := bufio.NewReader(file)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return list
		}
		require.NoError(t, err)
		var x exchange
		require.NoError(t, json.Unmarshal(line, &x))
		list = append(list, x)
	}
}

// depend has a cached result of this test not outlive the code that it is about:
// the go command sees which files a test looks at, not those of its children.
func depend(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"admin", "chain", "core"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		})
		require.NoError(t, err)
	}
}

func document(t *testing.T) (libopenapi.Document, validator.Validator) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "admin", "openapi.json"))
	require.NoError(t, err)
	doc, err := libopenapi.NewDocument(raw)
	require.NoError(t, err)
	v, errs := validator.NewValidator(doc)
	require.Empty(t, errs)
	return doc, v
}

func TestTheDocumentIsValid(t *testing.T) {
	_, v := document(t)
	valid, errs := v.ValidateDocument()
	for _, err := range errs {
		t.Errorf("%s: %s", err.Message, err.Reason)
	}
	require.True(t, valid)
}

// Every answer is one that the document describes, every request that was taken
// is one that it allows, and every operation was made.
func TestExchanges(t *testing.T) {
	doc, v := document(t)
	model, err := doc.BuildV3Model()
	require.NoError(t, err)
	operations := map[string]bool{}
	for path, it := range model.Model.Paths.PathItems.FromOldest() {
		for method := range it.GetOperations().FromOldest() {
			operations[strings.ToUpper(method)+" "+path] = true
		}
	}
	faults, seen := map[string]int{}, map[string]bool{}
	for _, x := range record(t) {
		operation := operationOf(operations, &x)
		if operation == "" {
			if x.Status < 400 {
				assert.Fail(t, "an operation that the document does not have", "%s %s: %d", x.Method, x.URL, x.Status)
			}
			continue
		}
		if x.Status < 300 {
			seen[operation] = true
		}
		for _, fault := range check(t, v, &x) {
			faults[fmt.Sprintf("%s %d: %s", operation, x.Status, fault)]++
		}
	}
	for fault, n := range faults {
		t.Errorf("%d times: %s", n, fault)
	}
	for operation := range operations {
		assert.True(t, seen[operation], "%s was never made", operation)
	}
}

// operationOf finds an exchange's operation; empty for none.
func operationOf(operations map[string]bool, x *exchange) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(x.URL, "http://127.0.0.1:9901"), "?")
	segments := strings.Split(path, "/")
	for operation := range operations {
		method, template, _ := strings.Cut(operation, " ")
		if method == x.Method && fits(strings.Split(template, "/"), segments) {
			return operation
		}
	}
	return ""
}

func fits(template, segments []string) bool {
	if len(template) != len(segments) {
		return false
	}
	for i, part := range template {
		_, verb, variable := strings.Cut(part, "}")
		if variable && (segments[i] == "" || !strings.HasSuffix(segments[i], verb)) || !variable && part != segments[i] {
			return false
		}
	}
	return true
}

// check returns what does not fit the document.
func check(t *testing.T, v validator.Validator, x *exchange) (faults []string) {
	t.Helper()
	req, err := http.NewRequest(x.Method, x.URL, strings.NewReader(x.RequestBody))
	require.NoError(t, err)
	for name, values := range x.RequestHeader {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	res := &http.Response{
		StatusCode: x.Status, Header: x.Header, Body: io.NopCloser(bytes.NewReader([]byte(x.Body))), Request: req, ContentLength: int64(len(x.Body)),
	}
	_, errs := v.ValidateHttpResponse(req, res)
	if x.Status < 400 {
		_, more := v.ValidateHttpRequest(req)
		errs = append(errs, more...)
	}
	for _, err := range errs {
		if err.ValidationType == "security" { // some rigs have another way to tell who asks
			continue
		}
		text := err.Message + ": " + err.Reason
		for _, s := range err.SchemaValidationErrors {
			text += "; " + s.Reason + " at " + s.FieldPath
		}
		faults = append(faults, text)
	}
	return faults
}
