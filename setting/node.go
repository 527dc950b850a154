package setting

// NodeKind says what a node of a file is.
type NodeKind int

// Kinds of nodes.
const (
	OtherNode    NodeKind = iota // a single value that no key accepts
	UnusableNode                 // Text says why, and Hint what to do
	MapNode
	ListNode
	TextNode
	BlockNode // text over several lines
	NumberNode
	TruthNode
	NotFiniteNode
)

// Place is a position in a file, from 1.
type Place struct{ Line, Column int }

// Node is a value of a file, as the file's parser found it.
type Node struct {
	Kind    NodeKind
	Place   Place
	Text    string  // of a single value, as it is written
	Hint    string  // of an unusable one
	Numeric bool    // the text is also a number
	Entries []Pair  // of a map, in the file's order
	Items   []*Node // of a list
}

// Pair is a key of a map, with its value.
type Pair struct {
	Name          string
	Place         Place
	Value         *Node
	Problem, Hint string // what is wrong with the key in the file, and what to write instead; then Name is empty
}
