package pack

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestPartHeader(t *testing.T) {
	for _, bad := range []string{"", "a", "a/0", "/0/1", "a/1/1", "a/-1/2", "a/x/2", "a/0/x", "a/0/1/2", "a/0/0"} {
		if p, err := ParsePart(bad); err == nil {
			t.Errorf("%q is read as %v", bad, p)
		}
	}
	if p, err := ParsePart("a/3/12"); err != nil || p != (Part{"a", 3, 12}) {
		t.Errorf("a/3/12 is read as %v, %v", p, err)
	}
}

// Whichever messages are missing, exactly those values are returned whose chunks all arrived in sequence.
func TestAssemblerProperty(t *testing.T) {
	type message struct {
		Part
		chunk []byte
	}
	rapid.Check(t, func(rt *rapid.T) {
		var sent []message
		var want [][]byte
		for v := range rapid.IntRange(1, 6).Draw(rt, "values") {
			value := bytes.Repeat([]byte{byte(v)}, rapid.IntRange(0, 20).Draw(rt, "size"))
			chunks := Split(value, 4)
			from := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "from")
			to := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(rt, "cut")
			for i := min(from, len(chunks)); i < len(chunks)-to; i++ {
				sent = append(sent, message{Part{string(rune('a' + v)), i, len(chunks)}, chunks[i]})
			}
			if from+to == 0 {
				want = append(want, value)
			}
		}
		var a Assembler
		var got [][]byte
		for _, m := range sent {
			if value, complete := a.Add(m.Part, m.chunk); complete {
				got = append(got, value)
			}
		}
		if len(got) != len(want) {
			rt.Fatalf("got %d values, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				rt.Fatalf("value %d is %v, want %v", i, got[i], want[i])
			}
		}
	})
}

func FuzzParsePart(f *testing.F) {
	f.Add("id/0/1")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePart(text)
		if err != nil {
			return
		}
		if again, err := ParsePart(p.String()); err != nil || again != p || p.Index >= p.Count {
			t.Fatalf("%q is read as %v and again as %v, %v", text, p, again, err)
		}
	})
}

func TestUnpackIsBounded(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	bomb := p.enc.EncodeAll(make([]byte, MaxValue+1), nil)
	if _, err := p.Unpack(bomb); err == nil {
		t.Error("a value beyond the bound was unpacked")
	}
	if _, err := p.Unpack([]byte("not packed")); err == nil {
		t.Error("garbage was unpacked")
	}
}
