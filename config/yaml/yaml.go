// Package yaml reads and parses YAML files for package setting.
package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/quellhq/quell"
	"github.com/quellhq/quell/internal/namedfile"
	"github.com/quellhq/quell/setting"
)

// Limits of a file. The YAML parser's time grows with the square of the nesting and of the number of keys in one map,
// so both are limited before it runs.
const (
	maxBytes  = 1 << 20
	maxTokens = 50_000
	maxDepth  = 40
)

func placeOf(t *token.Token) setting.Place {
	if t == nil || t.Position == nil {
		return setting.Place{Line: 1, Column: 1}
	}
	return setting.Place{Line: t.Position.Line, Column: t.Position.Column}
}

// start returns where a node begins: a map in block style begins at its first key, not at the colon after it.
func start(n ast.Node) setting.Place {
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

// source is the format.
type source struct{}

// NewDecoder makes a decoder for the named YAML file.
func NewDecoder(file string) *setting.Decoder { return setting.NewDecoder(file, source{}) }

// Parse returns the root of a file's single document.
func (source) Parse(d *setting.Decoder, data []byte) (root *setting.Node, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case len(data) > maxBytes:
		d.ProblemAt(setting.Place{Line: 1, Column: 1}, fmt.Sprintf("the file is larger than %s", setting.FormatSize(maxBytes)), "")
	case !utf8.Valid(data):
		d.ProblemAt(setting.Place{Line: 1, Column: 1}, "the file is not text in UTF-8", "")
	case len(bytes.TrimSpace(data)) == 0:
		d.ProblemAt(setting.Place{Line: 1, Column: 1}, "the file is empty", "")
	default:
		return parse(d, string(data))
	}
	return nil, false
}

func parse(d *setting.Decoder, text string) (*setting.Node, bool) {
	// The YAML library has panicked on unusual input before; a file must never crash Quell.
	defer func() {
		if r := recover(); r != nil {
			d.ProblemAt(setting.Place{Line: 1, Column: 1}, "the file cannot be read as YAML", "")
		}
	}()
	tokens := lexer.Tokenize(text)
	if !bounded(d, tokens) {
		return nil, false
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		syntax(d, err)
		return nil, false
	}
	root, ok := onlyDocument(d, file)
	if !ok {
		return nil, false
	}
	return convert(root), true
}

// bounded refuses files that are nested too deeply or have too many parts.
func bounded(d *setting.Decoder, tokens token.Tokens) bool {
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

func syntax(d *setting.Decoder, err error) {
	var located yaml.Error
	if !errors.As(err, &located) || located.GetToken() == nil {
		d.ProblemAt(setting.Place{Line: 1, Column: 1}, "not valid YAML: "+err.Error(), "")
		return
	}
	hint := ""
	if t := located.GetToken(); t.Type == token.InvalidType && bytes.ContainsRune([]byte(t.Origin), '\t') {
		hint = "indent with spaces, not tabs"
	}
	d.ProblemAt(placeOf(located.GetToken()), "not valid YAML: "+located.GetMessage(), hint)
}

func onlyDocument(d *setting.Decoder, file *ast.File) (ast.Node, bool) {
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc != nil && doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		d.ProblemAt(setting.Place{Line: 1, Column: 1}, "the file is empty", "")
		return nil, false
	case len(bodies) > 1:
		d.ProblemAt(start(bodies[1]), "a second document begins here", "one file holds one document; remove the ---")
		return nil, false
	}
	return bodies[0], true
}

// convert turns a node of the parser into one of package setting. What YAML can express and Quell does not support becomes unusable.
func convert(n ast.Node) *setting.Node {
	if n == nil {
		return &setting.Node{Kind: setting.UnusableNode, Place: setting.Place{Line: 1, Column: 1}, Text: "has no value"}
	}
	made := &setting.Node{Place: start(n), Text: n.GetToken().Value}
	unusable := func(problem, hint string) { made.Kind, made.Text, made.Hint = setting.UnusableNode, problem, hint }
	switch n := n.(type) {
	case *ast.AnchorNode:
		unusable("anchors are not supported", "write the value out where it is needed")
	case *ast.AliasNode:
		unusable("aliases are not supported", "write the value out here")
	case *ast.TagNode:
		unusable("tags are not supported", "remove "+n.Start.Value)
	case *ast.DirectiveNode:
		unusable("directives are not supported", "remove the line")
	case *ast.NullNode:
		unusable("has no value", "give it one or remove the key")
	case *ast.MappingNode:
		made.Kind, made.Entries = setting.MapNode, entries(n.Values...)
	case *ast.MappingValueNode:
		made.Kind, made.Entries = setting.MapNode, entries(n)
	case *ast.SequenceNode:
		made.Kind = setting.ListNode
		for _, item := range n.Values {
			made.Items = append(made.Items, convert(item))
		}
	default:
		single(n, made)
	}
	return made
}

// exponential is a number in YAML 1.2, such as 1e6. The parser takes it for text, because YAML 1.1 wants 1.0e+6.
var exponential = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]*)?[eE][+-]?[0-9]+$`)

// single fills in a value that is neither map nor list.
func single(n ast.Node, made *setting.Node) {
	switch n := n.(type) {
	case *ast.StringNode:
		made.Kind, made.Text = setting.TextNode, n.Value
		made.Numeric = n.Token.Type == token.StringType && exponential.MatchString(n.Value)
	case *ast.LiteralNode:
		made.Kind = setting.BlockNode
	case *ast.IntegerNode, *ast.FloatNode:
		made.Kind = setting.NumberNode
	case *ast.BoolNode:
		made.Kind = setting.TruthNode
	case *ast.InfinityNode, *ast.NanNode:
		made.Kind = setting.NotFiniteNode
	}
}

func entries(nodes ...*ast.MappingValueNode) []setting.Pair {
	list := make([]setting.Pair, len(nodes))
	for i, n := range nodes {
		e := setting.Pair{Place: start(n.Key), Value: convert(n.Value)}
		switch k := n.Key.(type) {
		case *ast.StringNode:
			e.Name = k.Value
		case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
			e.Name = k.GetToken().Value
		case *ast.MergeKeyNode:
			e.Problem, e.Hint = "merge keys are not supported", "write the values out here"
		default:
			e.Problem, e.Hint = "this is no plain key", "keys are single words"
		}
		list[i] = e
	}
	return list
}

// Read reads a file that a value names. It must be a plain file.
func (source) Read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, errors.Unwrap(err)
	case !info.Mode().IsRegular():
		return nil, errors.New("is no plain file")
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("is larger than %s", setting.FormatSize(maxBytes))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return data, nil
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
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		err = cause.Err
	}
	p := setting.Problem{File: path, Text: fmt.Sprintf("cannot be read: %v", err)}
	if errors.Is(err, fs.ErrPermission) {
		p.Hint = "give it to the user that runs this"
	}
	return &quell.UserError{Err: setting.Problems{p}}
}
