package e2e

import (
	"os"
	"strings"
	"testing"
)

// TestReadme: the example of README.md is the program that is compiled.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("shipping/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "\n")
	if !strings.Contains(string(readme), "```go\n"+code+"```\n") {
		t.Error("README.md does not have shipping/main.go as it is")
	}
}
