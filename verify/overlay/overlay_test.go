package overlay

import (
	"strings"
	"testing"
)

// TestFiles: edits follow one another, and a fault knows its name.
func TestFiles(t *testing.T) {
	files, err := Changes{
		Edits: []Edit{
			In("set.go", "package typedqueue", "package first"),
			In("set.go", "package first", "package second"),
		},
		Faults: []Fault{{"some \"fault\"", In("heap.go", "package typedqueue", "fault == $")}},
		Added:  map[string]string{"new.go": "new"},
	}.files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"set.go": "package second", "heap.go": `fault == "some \"fault\""`, "new.go": "new", "fault.go": `"TYPEDQUEUE_FAULT"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s does not have %q", name, want)
		}
	}
	if len(files) != 4 {
		t.Errorf("there are %d files", len(files))
	}
}

// TestFiles_Unfit: a change that fits no more is an error, and not a build without it.
func TestFiles_Unfit(t *testing.T) {
	for name, c := range map[string]Changes{
		"a text that is not there":   {Edits: []Edit{In("set.go", "nowhere", "")}},
		"a text that is there twice": {Edits: []Edit{In("set.go", "set", "")}},
		"a fault without its text":   {Faults: []Fault{{"fault", In("set.go", "nowhere", "")}}},
		"a file that is not there":   {Edits: []Edit{In("none.go", "package", "")}},
		"an added file that is":      {Added: map[string]string{"set.go": ""}},
	} {
		if _, err := c.files(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
