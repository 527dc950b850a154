package keys

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/namedfile"
)

// Limits of a file. The YAML parser's time grows with the square of the nesting and of the number of keys in one map,
// so both are limited before it runs.
const (
	maxBytes  = 1 << 20
	maxTokens = 50_000
	maxDepth  = 40
)

// Place is a position in a file, from 1.
type Place struct{ Line, Column int }

func placeOf(t *token.Token) Place {
	if t == nil || t.Position == nil {
		return Place{1, 1}
	}
	return Place{t.Position.Line, t.Position.Column}
}

// start returns where a node begins: a map in block style begins at its first key, not at the colon after it.
func start(n ast.Node) Place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return start(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return start(n.Key)
	}
	return placeOf(n.GetToken())
}

// tree returns the root of a file's single document.
func (d *Decoder) tree(data []byte) (root ast.Node, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case len(data) > maxBytes:
		d.ProblemAt(Place{1, 1}, fmt.Sprintf("the file is larger than %s", formatSize(maxBytes)), "")
	case !utf8.Valid(data):
		d.ProblemAt(Place{1, 1}, "the file is not text in UTF-8", "")
	case len(bytes.TrimSpace(data)) == 0:
		d.ProblemAt(Place{1, 1}, "the file is empty", "")
	default:
		return d.parse(string(data))
	}
	return nil, false
}

func (d *Decoder) parse(text string) (ast.Node, bool) {
	// The YAML library has panicked on unusual input before; a file must never crash Quell.
	defer func() {
		if r := recover(); r != nil {
			d.ProblemAt(Place{1, 1}, "the file cannot be read as YAML", "")
		}
	}()
	tokens := lexer.Tokenize(text)
	if !d.bounded(tokens) {
		return nil, false
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return nil, false
	}
	return d.onlyDocument(file)
}

// bounded refuses files that are nested too deeply or have too many parts.
func (d *Decoder) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		d.ProblemAt(placeOf(tokens[maxTokens]), fmt.Sprintf("the file has more than %d parts", maxTokens), "")
		return false
	}
	open, dashes := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open++
		case token.MappingEndType, token.SequenceEndType:
			open--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			dashes++
		default:
			dashes = 0
		}
		if open > maxDepth || dashes > maxDepth || t.Position != nil && t.Position.IndentLevel > maxDepth {
			d.ProblemAt(placeOf(t), fmt.Sprintf("nested more than %d levels deep", maxDepth), "")
			return false
		}
	}
	return true
}

func (d *Decoder) syntax(err error) {
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		d.ProblemAt(Place{1, 1}, "not valid YAML: "+err.Error(), "")
		return
	}
	hint := ""
	if t := located.GetToken(); t.Type == token.InvalidType && bytes.ContainsRune([]byte(t.Origin), '\t') {
		hint = "indent with spaces, not tabs"
	}
	d.ProblemAt(placeOf(located.GetToken()), "not valid YAML: "+located.GetMessage(), hint)
}

func (d *Decoder) onlyDocument(file *ast.File) (ast.Node, bool) {
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc != nil && doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		d.ProblemAt(Place{1, 1}, "the file is empty", "")
		return nil, false
	case len(bodies) > 1:
		d.ProblemAt(start(bodies[1]), "a second document begins here", "one file holds one document; remove the ---")
		return nil, false
	}
	return bodies[0], true
}

// plain returns a value without the anchors and tags that YAML can put around it. It reports them as problems, because Quell does
// not support them.
func (d *Decoder) plain(n ast.Node) (ast.Node, bool) {
	switch n := n.(type) {
	case nil:
		return nil, false
	case *ast.AnchorNode:
		d.problem(n, "anchors are not supported", "write the value out where it is needed")
	case *ast.AliasNode:
		d.problem(n, "aliases are not supported", "write the value out here")
	case *ast.TagNode:
		d.problem(n, "tags are not supported", "remove "+n.Start.Value)
	case *ast.DirectiveNode:
		d.problem(n, "directives are not supported", "remove the line")
	case *ast.NullNode:
		d.problem(n, "has no value", "give it one or remove the key")
	default:
		return n, true
	}
	return nil, false
}

// ReadFile reads a file, but at most one byte more than Parse accepts: enough for Parse to notice that the file is too large.
func ReadFile(path string) ([]byte, error) {
	data, err := namedfile.Begin(path, maxBytes+1)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return data, nil
}

func unreadable(path string, err error) error {
	var cause *os.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	return &quell.UserError{Err: Problems{{File: path, Text: fmt.Sprintf("cannot be read: %v", err)}}}
}
