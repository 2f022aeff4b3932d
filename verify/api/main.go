// Command api guards the API of the modules that people import. It compares each with its
// record in this folder, as golang.org/x/exp/apidiff does, prints what has changed, and fails
// if a change is incompatible and the changelog does not name it.
//
//	go -C verify run ./api           compare
//	go -C verify run ./api -update   record the API as it is, at a release
//
// The newest section of CHANGELOG.md names an incompatible change in an item that begins with
// "- Breaking:", by the identifier in backticks, such as `Queue.Get`, or `kube.NewQueue` for
// what another module than the root has.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/tools/go/packages"
)

// modules are the folders of the importable modules, each of one package.
var modules = []string{".", "etcd", "kube", "page", "prometheus"}

func main() {
	root := flag.String("root", "..", "folder of the root module")
	update := flag.Bool("update", false, "record the API as it is")
	flag.Parse()
	run := compare
	if *update {
		run = record
	}
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

// record writes the records of all modules.
func record(root string) error {
	for _, module := range modules {
		pkg, _, err := load(filepath.Join(root, module), nil)
		if err != nil {
			return err
		}
		if err := os.WriteFile(recordOf(root, module), render(pkg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func recordOf(root, module string) string {
	return filepath.Join(root, "verify", "api", nameOf(module)+".txt")
}

func nameOf(module string) string {
	if module == "." {
		return "typedqueue"
	}
	return module
}

// compare prints the changes of all modules. It returns an error if one is incompatible and
// the changelog does not name it.
func compare(root string) error {
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	unnamed := 0
	for _, module := range modules {
		recorded, err := os.ReadFile(recordOf(root, module))
		if err != nil {
			return fmt.Errorf("%w (write it with -update)", err)
		}
		changes, err := diff(filepath.Join(root, module), recorded)
		if err != nil {
			return err
		}
		unnamed += report(module, changes, breaking(string(changelog)))
	}
	if unnamed > 0 {
		return fmt.Errorf("%d incompatible changes are not named in CHANGELOG.md", unnamed)
	}
	return nil
}

// report prints the changes of one module, and returns how many of them ought to have been
// named.
func report(module string, changes []apidiff.Change, named func(string) bool) (unnamed int) {
	fmt.Printf("%s: %d changes since the record\n", nameOf(module), len(changes))
	for _, c := range changes {
		verdict := "compatible"
		if !c.Compatible {
			verdict = "INCOMPATIBLE, and the changelog names it"
			if id := identifier(module, c.Message); !named(id) {
				verdict = fmt.Sprintf("INCOMPATIBLE, and the changelog does not name `%s`", id)
				unnamed++
			}
		}
		fmt.Printf("\t%s (%s)\n", c.Message, verdict)
	}
	return unnamed
}

// load returns the package in a folder, and by path that and more.
func load(dir string, more []string) (*types.Package, map[string]*types.Package, error) {
	mode := packages.NeedName | packages.NeedTypes | packages.NeedImports
	loaded, err := packages.Load(&packages.Config{Mode: mode, Dir: dir}, append([]string{"."}, more...)...)
	if err != nil {
		return nil, nil, err
	}
	var pkg *types.Package
	imports := map[string]*types.Package{}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, nil, p.Errors[0]
		}
		imports[p.PkgPath] = p.Types
		if !slices.Contains(more, p.PkgPath) {
			pkg = p.Types
		}
	}
	return pkg, imports, nil
}

// importer finds packages that are there already.
type importer map[string]*types.Package

func (i importer) Import(path string) (*types.Package, error) {
	if p := i[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s is not to be had any more", path)
}

// diff returns the changes from a record to the package in a folder.
func diff(dir string, recorded []byte) ([]apidiff.Change, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "record", recorded, 0)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	now, imports, err := load(dir, paths)
	if err != nil {
		return nil, err
	}
	before := types.NewPackage(now.Path(), now.Name())
	conf := types.Config{Importer: importer(imports)}
	if err := types.NewChecker(&conf, fset, before, nil).Files([]*ast.File{file}); err != nil {
		return nil, err
	}
	return distinct(apidiff.Changes(before, now).Changes), nil
}

// distinct leaves out repetitions: a change of a generic type is told once for each use of it.
func distinct(changes []apidiff.Change) []apidiff.Change {
	slices.SortFunc(changes, func(a, b apidiff.Change) int { return strings.Compare(a.Message, b.Message) })
	return slices.Compact(changes)
}

var (
	typeArguments = regexp.MustCompile(`\[[^\]]*\]`)
	breakingItem  = regexp.MustCompile(`(?m)^- Breaking:(?:.|\n  )*`)
)

// identifier returns what the changelog should call that which a message of apidiff is about.
func identifier(module, message string) string {
	id, _, _ := strings.Cut(message, ":")
	id = strings.NewReplacer("(*", "", "(", "", ")", "").Replace(typeArguments.ReplaceAllString(id, ""))
	if module != "." {
		id = module + "." + id
	}
	return id
}

// breaking returns a function that reports whether the newest section of a changelog names an
// identifier among what it breaks.
func breaking(changelog string) func(id string) bool {
	sections := strings.Split(changelog, "\n## ")
	newest := sections[min(1, len(sections)-1)]
	items := breakingItem.FindAllString(newest, -1)
	return func(id string) bool {
		return slices.ContainsFunc(items, func(item string) bool { return strings.Contains(item, "`"+id+"`") })
	}
}

// renderer writes the exported API of a package as Go source without bodies. Of each type it
// writes the whole method set, whether or not a method comes from an embedded type, since
// that is what a user sees.
type renderer struct {
	pkg   *types.Package
	names map[string]string // of the imported packages, by path
	buf   bytes.Buffer
}

func render(pkg *types.Package) []byte {
	r := &renderer{pkg: pkg, names: map[string]string{}}
	for _, name := range pkg.Scope().Names() {
		if obj := pkg.Scope().Lookup(name); obj.Exported() {
			r.object(obj)
		}
	}
	var imports strings.Builder
	for _, p := range slices.Sorted(maps.Keys(r.names)) {
		name := r.names[p]
		if name == path.Base(p) {
			name = ""
		}
		fmt.Fprintf(&imports, "import %s %q\n", name, p)
	}
	src := fmt.Sprintf("package %s\n\n%s\n%s", pkg.Name(), imports.String(), r.buf.String())
	formatted, err := format.Source([]byte(src))
	if err != nil {
		panic(fmt.Sprintf("api: cannot write down the API of %s: %v", pkg.Path(), err))
	}
	return formatted
}

// name is how the package at a path is called in the record.
func (r *renderer) name(pkg *types.Package) string {
	if pkg == r.pkg {
		return ""
	}
	if r.names[pkg.Path()] == "" {
		name := pkg.Name()
		for n := 2; slices.Contains(slices.Collect(maps.Values(r.names)), name); n++ {
			name = pkg.Name() + strconv.Itoa(n)
		}
		r.names[pkg.Path()] = name
	}
	return r.names[pkg.Path()]
}

func (r *renderer) string(t types.Type) string { return types.TypeString(t, r.name) }

func (r *renderer) signature(t types.Type) string {
	return strings.TrimPrefix(r.string(t), "func")
}

func (r *renderer) object(obj types.Object) {
	switch obj := obj.(type) {
	case *types.Const:
		fmt.Fprintf(&r.buf, "const %s %s = %s\n", obj.Name(), r.string(obj.Type()), obj.Val().ExactString())
	case *types.Var:
		fmt.Fprintf(&r.buf, "var %s %s\n", obj.Name(), r.string(obj.Type()))
	case *types.Func:
		fmt.Fprintf(&r.buf, "func %s%s { panic(0) }\n\n", obj.Name(), r.signature(obj.Type()))
	case *types.TypeName:
		r.typeName(obj)
	}
}

func (r *renderer) typeName(obj *types.TypeName) {
	named, ok := obj.Type().(*types.Named)
	if !ok {
		fmt.Fprintf(&r.buf, "type %s = %s\n\n", obj.Name(), r.string(types.Unalias(obj.Type())))
		return
	}
	fmt.Fprintf(&r.buf, "type %s %s\n\n", r.string(named), r.underlying(named.Underlying()))
	if types.IsInterface(named) {
		return
	}
	byValue := types.NewMethodSet(named)
	for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		f := m.Obj()
		if !f.Exported() {
			continue
		}
		receiver := receiverOf(named)
		if byValue.Lookup(f.Pkg(), f.Name()) == nil {
			receiver = "*" + receiver
		}
		fmt.Fprintf(&r.buf, "func (%s) %s%s { panic(0) }\n", receiver, f.Name(), r.signature(m.Type()))
	}
	fmt.Fprintln(&r.buf)
}

// receiverOf returns a type as it stands in a method's receiver.
func receiverOf(named *types.Named) string {
	var names []string
	for p := range named.TypeParams().TypeParams() {
		names = append(names, p.Obj().Name())
	}
	if len(names) == 0 {
		return named.Obj().Name()
	}
	return named.Obj().Name() + "[" + strings.Join(names, ", ") + "]"
}

// underlying returns the underlying type of a named one. A blank field stands for what a struct
// does not export; it can be compared if that can.
func (r *renderer) underlying(t types.Type) string {
	s, ok := t.(*types.Struct)
	if !ok {
		return r.string(t)
	}
	var b strings.Builder
	hidden := false
	for f := range s.Fields() {
		switch {
		case !f.Exported():
			hidden = true
		case f.Embedded():
			fmt.Fprintf(&b, "%s\n", r.string(f.Type()))
		default:
			fmt.Fprintf(&b, "%s %s\n", f.Name(), r.string(f.Type()))
		}
	}
	switch {
	case hidden && types.Comparable(s):
		b.WriteString("_ int\n")
	case hidden:
		b.WriteString("_ []int\n")
	}
	return "struct {\n" + b.String() + "}"
}
