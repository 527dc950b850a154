package config

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compileSchema compiles the schema of a configuration.
func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	var text bytes.Buffer
	if err := drivers.Schema(&text); err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(&text)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("quell.json", whole); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("quell.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// valid checks a file as an editor does.
func valid(t *testing.T, schema *jsonschema.Schema, data []byte) error {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Skipf("the file is no YAML: %v", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

// Every example and the file with all keys are valid by the schema.
func TestSchemaAcceptsGoodFiles(t *testing.T) {
	schema, found := compileSchema(t), 0
	files := []string{"testdata/full.yaml", "../packaging/quell.yaml"}
	err := filepath.WalkDir("../examples", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".yaml" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		t.Run(path, func(t *testing.T) {
			data := read(t, path)
			if _, err := drivers.Parse(path, data); err != nil {
				t.Skip("it is no configuration: " + err.Error())
			}
			found++
			if err := valid(t, schema, data); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	if found < 8 {
		t.Errorf("only %d configurations were found", found)
	}
}

// bySchema is in the messages about mistakes that a schema can tell: names, words and kinds of values.
var bySchema = regexp.MustCompile(`unknown key|is a key of|unknown value|must be (true or false|a list|a map|a finite number)|must be text, is a (list|map)`)

// Every bad file that breaks a rule of the schema is invalid by it.
func TestSchemaRefusesBadFiles(t *testing.T) {
	schema, told := compileSchema(t), 0
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		said := read(t, strings.TrimSuffix(path, ".yaml")+".err")
		if !bySchema.Match(said) {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			if err := valid(t, schema, read(t, path)); err == nil {
				t.Errorf("the schema accepts it, and Quell says %s", said)
			}
			told++
		})
	}
	if told < 30 {
		t.Errorf("only %d of %d bad files break a rule of the schema", told, len(files))
	}
}
