package main

import (
	"fmt"
	"os"
	"strings"
)

// The list of survivors is made of paragraphs. The first line of each, which may run on in
// indented ones, begins with "Why: " and says why no test can, or should, tell the mutants
// below it from the product. Each of those is a line, as mutant.key has it. Lines that begin
// with # are comments.

// readSurvivors returns the reason for each mutant that is listed.
func readSurvivors(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	why := ""
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			why = ""
		case strings.HasPrefix(line, "Why: "):
			why = strings.TrimPrefix(line, "Why: ")
		case strings.HasPrefix(line, " ") && why != "":
			why += " " + strings.TrimSpace(line)
		case why == "":
			return nil, fmt.Errorf("%s:%d: no reason above this", path, i+1)
		case reasons[line] != "":
			return nil, fmt.Errorf("%s:%d: listed twice", path, i+1)
		default:
			reasons[line] = why
		}
	}
	return reasons, nil
}
