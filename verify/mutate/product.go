package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// product is the package under test, and what is wrong with it in turn.
type product struct {
	dir     string
	pkg     *packages.Package
	imports imports
	sources map[string]string // by base name
	files   []string          // base names of what is mutated
	mutants []*mutant         // those that compile, in order of their ids
	broken  []*mutant         // those that do not
	schemas map[string]string // by base name
}

// load finds the mutants of the package in dir: of those files only, if there are any. Ids
// do not depend on files.
func load(dir string, files []string) (*product, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	pkgs, err := packages.Load(&packages.Config{Dir: dir, Mode: packages.NeedName | packages.NeedFiles |
		packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports}, ".", "os", "strconv") // and what switchFile imports
	if err != nil {
		return nil, err
	}
	p := &product{dir: dir, pkg: pkgs[0], imports: map[string]*types.Package{}, sources: map[string]string{}, schemas: map[string]string{}}
	for _, other := range pkgs {
		if other.PkgPath != "os" && other.PkgPath != "strconv" {
			p.pkg = other
		}
		p.imports[other.PkgPath] = other.Types
	}
	if len(p.pkg.Errors) > 0 {
		return nil, p.pkg.Errors[0]
	}
	for path, other := range p.pkg.Imports {
		p.imports[path] = other.Types
	}
	if err := p.collect(files); err != nil {
		return nil, err
	}
	return p, p.compile()
}

func (p *product) collect(only []string) error {
	id := 0
	for i, path := range p.pkg.GoFiles {
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		p.sources[name] = string(src)
		f := p.pkg.Syntax[i]
		c := collector{file: name, src: string(src), tok: p.pkg.Fset.File(f.FileStart), info: p.pkg.TypesInfo, pkg: p.pkg.Types}
		found := c.collect(f)
		for _, m := range found {
			id++
			m.id = id
		}
		if len(only) == 0 || slices.Contains(only, name) {
			p.files = append(p.files, name)
			p.mutants = append(p.mutants, found...)
		}
	}
	if len(only) > len(p.files) {
		return fmt.Errorf("of %q the package has only %q", only, p.files)
	}
	return nil
}

// compile writes the schemas, and drops the mutants that the type checker refuses.
func (p *product) compile() error {
	if err := p.compileSolos(); err != nil {
		return err
	}
	for {
		spans := map[string][]span{}
		for _, f := range p.files {
			p.schemas[f], spans[f] = write(p.sources[f], p.in(f))
		}
		faults, err := p.check(p.schemas)
		if err != nil || len(faults) == 0 {
			return err
		}
		bad, err := p.blame(faults, spans)
		if err != nil {
			return err
		}
		if len(bad) == 0 {
			return fmt.Errorf("%s: %s", faults[0].file, faults[0].text)
		}
		p.drop(bad)
	}
}

func (p *product) compileSolos() error {
	bad := map[int]bool{}
	for _, m := range p.mutants {
		if !m.solo {
			continue
		}
		faults, err := p.check(map[string]string{m.file: m.apply(p.sources[m.file])})
		if err != nil {
			return err
		}
		bad[m.id] = len(faults) > 0
	}
	p.drop(bad)
	return nil
}

func (p *product) drop(bad map[int]bool) {
	p.mutants = slices.DeleteFunc(p.mutants, func(m *mutant) bool {
		if bad[m.id] {
			p.broken = append(p.broken, m)
		}
		return bad[m.id]
	})
}

// in returns the mutants that the schema of a file holds.
func (p *product) in(file string) (list []*mutant) {
	for _, m := range p.mutants {
		if m.file == file && !m.solo {
			list = append(list, m)
		}
	}
	return list
}

// fault is what the type checker finds in a file.
type fault struct {
	file   string
	offset int
	text   string
}

// check type-checks the package with those files changed.
func (p *product) check(changed map[string]string) ([]fault, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	var faults []fault
	parse := func(name, src string) error {
		f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
		files = append(files, f)
		return err
	}
	for name, src := range p.sources {
		if text, ok := changed[name]; ok {
			src = text
		}
		if err := parse(name, src); err != nil {
			return nil, err
		}
	}
	if err := parse("switch.go", switchSource(p.pkg.Name)); err != nil {
		return nil, err
	}
	conf := types.Config{Importer: p.imports, Error: func(err error) {
		var e types.Error
		if errors.As(err, &e) {
			at := fset.Position(e.Pos)
			faults = append(faults, fault{at.Filename, at.Offset, e.Msg})
		}
	}}
	conf.Check(p.pkg.PkgPath, fset, files, nil)
	return faults, nil
}

type imports map[string]*types.Package

func (m imports) Import(path string) (*types.Package, error) {
	if p := m[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no package %q", path)
}

// blame returns which mutants the faults are due to.
func (p *product) blame(faults []fault, spans map[string][]span) (map[int]bool, error) {
	bad := map[int]bool{}
	searched := set[string]{}
	for _, f := range faults {
		ids := innermost(spans[f.file], f.offset)
		if ids == nil && !searched[f.file] {
			searched[f.file] = true
			var err error
			if ids, err = p.search(f); err != nil {
				return nil, err
			}
		}
		for _, id := range ids {
			bad[id] = true
		}
	}
	return bad, nil
}

type set[T comparable] = map[T]bool

// innermost returns the mutants of the smallest span around offset.
func innermost(spans []span, offset int) (ids []int) {
	size := -1
	for _, s := range spans {
		if s.start <= offset && offset < s.end && (size < 0 || s.end-s.start < size) {
			size, ids = s.end-s.start, s.ids
		}
	}
	return ids
}

// search tries the mutants of a file one by one, for a fault that is not where its mutant
// is: a function that does not end in a return any more.
func (p *product) search(f fault) (ids []int, err error) {
	if !strings.Contains(f.text, "missing return") {
		return nil, fmt.Errorf("%s: a mutant's doing, but whose? %s", f.file, f.text)
	}
	for _, m := range p.in(f.file) {
		if m.edits[0].kind != statement {
			continue
		}
		text, _ := write(p.sources[f.file], []*mutant{m})
		faults, err := p.check(map[string]string{f.file: text})
		if err != nil {
			return nil, err
		}
		if len(faults) > 0 {
			ids = append(ids, m.id)
		}
	}
	return ids, nil
}
