package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/openapi3gen"
	"github.com/getkin/kin-openapi/routers"
	"github.com/goccy/go-yaml"

	"github.com/quellhq/quell/bus"
	"github.com/quellhq/quell/controller"
	"github.com/quellhq/quell/internal/golden"
	"github.com/quellhq/quell/page"
)

const openAPIFile = "../docs/openapi.yaml"

// openAPI is the description of all HTTP, checked for being one.
func openAPI(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(openAPIFile)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// The end of the description, its schemas, is what the program's types are.
func TestOpenAPISchemas(t *testing.T) {
	text := readFile(t, openAPIFile)
	const begin = "  schemas:\n"
	head := text[:strings.Index(text, begin)+len(begin)]
	golden.Compare(t, openAPIFile, []byte(head+schemas(t)))
	openAPI(t)
}

// schemas are the types of answers and commands.
func schemas(t *testing.T) string {
	t.Helper()
	all := openapi3.Schemas{}
	options := []openapi3gen.Option{
		openapi3gen.CreateComponentSchemas(openapi3gen.ExportComponentSchemasOptions{ExportComponentSchemas: true, ExportTopLevelSchema: true}),
		openapi3gen.CreateTypeNameGenerator(schemaName),
		openapi3gen.SchemaCustomizer(func(_ string, t reflect.Type, tag reflect.StructTag, s *openapi3.Schema) error {
			s.Min, s.Max = nil, nil // the limits of Go's integers say nothing
			if kind := t.Kind(); (kind == reflect.Slice || kind == reflect.Map) && !strings.Contains(tag.Get("json"), "omitempty") {
				s.Nullable = s.Nullable || tag != ""
			}
			return nil
		}),
	}
	for _, v := range []any{controller.Status{}, page.Now{}, page.Story{}, bus.Command{}} {
		if _, err := openapi3gen.NewSchemaRefForValue(v, all, options...); err != nil {
			t.Fatal(err)
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if data, err = yaml.JSONToYAML(data); err != nil {
		t.Fatal(err)
	}
	return "    " + strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n    ") + "\n"
}

// schemaName is the type's name. Names of packages would change when types move.
func schemaName(t reflect.Type) string { return t.Name() }

// route is a pattern of a server in the program's sources.
var route = regexp.MustCompile(`"(GET|POST|PUT|DELETE) (/[^"]*)"`)

// notDescribed are files whose HTTP only Quell's own processes speak, by a Unix socket, and which changes with them.
var notDescribed = []string{"balancer/builtin/admin.go", "agent/host/home.go"}

// Every route in the sources is described, and every described one is there.
func TestOpenAPIRoutes(t *testing.T) {
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != ".." || name == "lab" || name == "examples"):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || slices.Contains(notDescribed, name):
			return nil
		}
		for _, m := range route.FindAllStringSubmatch(readFile(t, path), -1) {
			found[m[1]+" "+described(name, m[2])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for path, item := range openAPI(t).Paths.Map() {
		for method := range item.Operations() {
			there[method+" "+path] = true
		}
	}
	if len(found) < 10 || !reflect.DeepEqual(found, there) {
		t.Errorf("in the sources: %v\ndescribed: %v", found, there)
	}
}

// described is how the description writes a pattern of a file.
func described(file, pattern string) string {
	switch {
	case file == "daemon/agent.go" && pattern == "/": // whatever is asked for
		return "/metrics"
	case strings.HasSuffix(pattern, "/static/"):
		return pattern + "{file}"
	}
	return strings.TrimSuffix(pattern, "{$}")
}

// api asks real processes, and checks their answers against the description.
type api struct {
	t   *testing.T
	doc *openapi3.T
	*http.Client
}

func newAPI(t *testing.T) *api {
	doc := openAPI(t)
	for _, s := range doc.Components.Schemas { // a field that is not described is an error here
		if s.Value.Properties != nil {
			s.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(false)}
		}
	}
	jar, _ := cookiejar.New(nil) // has no error without options
	return &api{t, doc, &http.Client{Jar: jar}}
}

// ask sends a request, and returns the body of the answer with the wanted status.
func (a *api) ask(address, method, path, query, body string, want int) []byte {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	at := url.URL{Scheme: "http", Host: address, Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := a.Do(request)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	var data []byte
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") { // has no end
		data, err = bufio.NewReader(answer.Body).ReadBytes('\n')
	} else {
		data, err = io.ReadAll(answer.Body)
	}
	if err != nil || answer.StatusCode != want {
		a.t.Fatalf("%s %s: %s, want %d; %v: %.500s", method, at.String(), answer.Status, want, err, data)
	}
	if err := a.check(request, answer, body, data); err != nil {
		a.t.Errorf("%s %s answers what is not described: %v", method, at.String(), err)
	}
	return data
}

// check compares a request and its answer with the description.
func (a *api) check(request *http.Request, answer *http.Response, sent string, data []byte) error {
	path, parameters := request.URL.Path, map[string]string{}
	if file, ok := strings.CutPrefix(path, "/page/static/"); ok {
		path, parameters = "/page/static/{file}", map[string]string{"file": file}
	}
	item := a.doc.Paths.Value(path)
	if item == nil || item.GetOperation(request.Method) == nil {
		return fmt.Errorf("no such operation")
	}
	request.Body = io.NopCloser(strings.NewReader(sent))
	asked := &openapi3filter.RequestValidationInput{Request: request, PathParams: parameters, QueryParams: request.URL.Query(),
		Route:   &routers.Route{Spec: a.doc, Path: path, PathItem: item, Method: request.Method, Operation: item.GetOperation(request.Method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if answer.StatusCode == http.StatusOK {
		if err := openapi3filter.ValidateRequest(request.Context(), asked); err != nil {
			return err
		}
	}
	kind, _, _ := strings.Cut(answer.Header.Get("Content-Type"), ";")
	described := asked.Route.Operation.Responses.Status(answer.StatusCode)
	if described == nil {
		described = asked.Route.Operation.Responses.Default()
	}
	if described == nil || described.Value.Content.Get(kind) == nil && (kind != "" || described.Value.Content != nil) {
		return fmt.Errorf("status %d with %q is not described", answer.StatusCode, kind)
	}
	options := &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: kind != "application/json"}
	return openapi3filter.ValidateResponse(request.Context(), &openapi3filter.ResponseValidationInput{RequestValidationInput: asked,
		Status: answer.StatusCode, Header: answer.Header, Body: io.NopCloser(bytes.NewReader(data)), Options: options})
}

// checkAPI asks for everything that the processes of a service answer. addresses are those of their metrics.
func (r *rig) checkAPI(addresses map[string]string) {
	r.t.Helper()
	a := newAPI(r.t)
	for name, address := range addresses {
		a.ask(address, "GET", "/metrics", "", "", http.StatusOK)
		a.ask(address, "GET", "/healthz", "", "", http.StatusOK)
		if name != "balancer" {
			a.ask(address, "GET", "/readyz", "", "", http.StatusOK)
		}
	}
	probe := r.probeOf()
	a.ask(probe, "GET", "/healthz", "", "", http.StatusOK)
	a.ask(probe, "GET", "/probe", "size=1000", "", http.StatusOK)
	a.ask(probe, "GET", "/probe", "size=0", "", http.StatusBadRequest)
	own := addresses["controller"]
	a.ask(own, "GET", "/status", "", "", http.StatusOK)
	a.ask(own, "GET", "/", "", "", http.StatusOK)
	for _, file := range []string{"app.js", "style.css"} {
		a.ask(own, "GET", "/page/static/"+file, "", "", http.StatusOK)
	}
	a.ask(own, "GET", "/page/now", "limit=10", "", http.StatusOK)
	a.ask(own, "GET", "/page/instance", "id=i1", "", http.StatusOK)
	a.ask(own, "GET", "/page/instance", "id=nobody", "", http.StatusNotFound)
	a.ask(own, "GET", "/page/journal", "hours=1", "", http.StatusOK)
	a.ask(own, "GET", "/page/events", "", "", http.StatusOK)
	a.ask(own, "POST", "/page/login", "", `{"ticket": "none"}`, http.StatusUnauthorized)
	a.ask(own, "POST", "/page/command", "", `{"name": "pause"}`, http.StatusUnauthorized)
	out, _ := r.quell("page", "--config", r.config)
	_, ticket, _ := strings.Cut(strings.TrimSpace(out), "#ticket=")
	a.ask(own, "POST", "/page/login", "", fmt.Sprintf(`{"ticket": %q}`, ticket), http.StatusOK)
	a.ask(own, "POST", "/page/command", "", `{"name": "pause"}`, http.StatusOK)
	a.ask(own, "POST", "/page/command", "", `{"name": "resume"}`, http.StatusOK)
	a.ask(own, "POST", "/page/command", "", `{"name": "drain", "instance": "nobody"}`, http.StatusConflict)
	a.ask(own, "POST", "/page/logout", "", "", http.StatusOK)
}
