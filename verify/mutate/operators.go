package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// collector finds the mutants of one file.
type collector struct {
	file    string // base name
	src     string
	tok     *token.File
	info    *types.Info
	pkg     *types.Package
	stack   []ast.Node // what encloses the node in hand, outermost first, and that node
	mutants []*mutant
}

// collect returns the mutants of f, without their ids.
func (c *collector) collect(f *ast.File) []*mutant {
	ast.PreorderStack(f, nil, func(n ast.Node, stack []ast.Node) bool {
		c.stack = append(stack, n)
		return c.visit(n)
	})
	slices.SortStableFunc(c.mutants, func(a, b *mutant) int { return a.edits[0].start - b.edits[0].start })
	seen := map[string]int{}
	for _, m := range c.mutants {
		k := m.key()
		m.nth = seen[k]
		seen[k]++
	}
	return c.mutants
}

// visit adds the mutants of n, and reports whether those of its children are wanted.
func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		if n.Tok == token.CONST {
			c.constants(n)
			return false
		}
	case *ast.ArrayType:
		return false // its length is no expression that can be switched
	case ast.Stmt:
		c.statements(n)
	case ast.Expr:
		c.expressions(n)
	}
	return true
}

func (c *collector) statements(s ast.Stmt) {
	if c.inList(s) {
		c.deletion(s)
	}
	switch s := s.(type) {
	case *ast.AssignStmt:
		c.assignment(s)
	case *ast.IncDecStmt:
		if c.inList(s) {
			op := map[token.Token]string{token.INC: "--", token.DEC: "++"}[s.Tok]
			c.statement(s, c.text(s.X)+op)
		}
	case *ast.ReturnStmt:
		c.results(s)
	case *ast.IfStmt:
		c.forced(s.Cond, "true", "false")
	case *ast.ForStmt:
		if s.Cond != nil {
			c.forced(s.Cond, "false") // true would only hang
		}
		c.once(s, s.Body)
	case *ast.RangeStmt:
		c.ranges(s)
		c.once(s, s.Body)
	case *ast.CaseClause:
		for _, e := range s.List {
			if c.isBool(e) {
				c.forced(e, "true", "false")
			}
		}
		c.emptied(s, s.Body)
	case *ast.CommClause:
		c.emptied(s, s.Body)
	}
}

func (c *collector) expressions(e ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		c.binary(e)
	case *ast.UnaryExpr:
		if e.Op == token.NOT || e.Op == token.SUB || e.Op == token.XOR {
			c.replace(e, c.text(e.X))
		}
	case *ast.BasicLit:
		c.literal(e)
	case *ast.Ident:
		if to := map[string]string{"true": "false", "false": "true"}[e.Name]; to != "" && c.info.Uses[e] == types.Universe.Lookup(e.Name) {
			c.replace(e, to)
		}
	case *ast.CallExpr:
		c.call(e)
	case *ast.CompositeLit:
		for _, elt := range e.Elts {
			if kv, ok := elt.(*ast.KeyValueExpr); ok && c.isField(kv.Key) {
				c.zero(kv.Value)
			}
		}
	}
}

// Statements.

// deletion leaves s out, if it makes sense: locks would only hang, or race; what is declared
// is needed; the only statement of an if is skipped by its condition being false; and a
// function ends in a return.
func (c *collector) deletion(s ast.Stmt) {
	if body, ok := c.outer(1).(*ast.BlockStmt); ok {
		_, result := s.(*ast.ReturnStmt)
		switch owner := c.outer(2).(type) {
		case *ast.IfStmt:
			if owner.Else == nil && len(body.List) == 1 {
				return
			}
		case *ast.FuncDecl, *ast.FuncLit:
			if result && s == body.List[len(body.List)-1] {
				return
			}
		}
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && isLocking(call) {
			return
		}
	case *ast.DeferStmt:
		if isLocking(s.Call) {
			return
		}
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt, *ast.ReturnStmt,
		*ast.SelectStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt:
	default:
		return
	}
	c.statement(s, "")
}

func isLocking(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, sel.Sel.Name)
}

// assignment drops each variable of several from s, and changes its operator.
func (c *collector) assignment(s *ast.AssignStmt) {
	if !c.inList(s) {
		return
	}
	if s.Tok == token.ASSIGN && len(s.Lhs) > 1 {
		for _, l := range s.Lhs {
			if c.text(l) != "_" {
				c.add(s, edit{c.at(l.Pos()), c.at(l.End()), statement, "", "_"})
			}
		}
	}
	if op, ok := otherAssign[s.Tok]; ok {
		c.add(s, edit{c.at(s.TokPos), c.at(s.TokPos) + len(s.Tok.String()), statement, "", op})
	}
}

var otherAssign = map[token.Token]string{
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=",
	token.MUL_ASSIGN: "/=", token.QUO_ASSIGN: "*=",
	token.OR_ASSIGN: "&=", token.AND_ASSIGN: "|=",
	token.XOR_ASSIGN: "|=", token.AND_NOT_ASSIGN: "|=",
	token.SHL_ASSIGN: ">>=", token.SHR_ASSIGN: "<<=",
}

// results makes each result zero, or its opposite.
func (c *collector) results(s *ast.ReturnStmt) {
	for _, r := range s.Results {
		switch {
		case c.isBool(r):
			if _, simple := r.(*ast.BinaryExpr); !simple && !isLiteral(r) {
				c.replace(r, "!("+c.text(r)+")")
			}
		default:
			c.zero(r)
		}
	}
}

// ranges skips the first or the last element.
func (c *collector) ranges(s *ast.RangeStmt) {
	x := c.text(s.X)
	switch t := c.info.TypeOf(s.X).Underlying().(type) {
	case *types.Slice:
		c.replace(s.X, skipFirst+"("+x+")")
		c.replace(s.X, skipLast+"("+x+")")
	case *types.Basic:
		if t.Info()&types.IsInteger != 0 {
			c.replace(s.X, "("+x+")-1")
		}
	case *types.Map:
		c.zero(s.X)
	case *types.Signature:
		if params := t.Params().At(0).Type().Underlying().(*types.Signature).Params().Len(); params == 1 {
			c.replace(s.X, skipFirstOf+"("+x+")")
		}
	}
}

// once leaves the loop s after its first round, unless that says continue.
func (c *collector) once(s ast.Stmt, body *ast.BlockStmt) {
	end := c.at(body.Rbrace)
	head := c.header(s)
	c.append(&mutant{
		line:  c.tok.Line(s.Pos()),
		from:  oneLine(head),
		to:    oneLine(head) + " once",
		edits: []edit{{end, end, statement, "", "; break"}},
	})
}

// emptied leaves out the body of a case. A single statement is deleted as such.
func (c *collector) emptied(s ast.Stmt, body []ast.Stmt) {
	if len(body) < 2 {
		return
	}
	head := oneLine(c.header(s))
	c.append(&mutant{
		line:  c.tok.Line(s.Pos()),
		from:  head,
		to:    head + " nothing",
		edits: []edit{{c.at(body[0].Pos()), c.at(body[len(body)-1].End()), statement, "", ""}},
	})
}

// Expressions.

func (c *collector) forced(cond ast.Expr, values ...string) {
	for _, v := range values {
		if c.text(cond) != v {
			c.replace(cond, v)
		}
	}
}

var otherOps = map[token.Token][]string{
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"},
	token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"}, token.REM: {"*"},
	token.AND: {"|"}, token.OR: {"&"}, token.XOR: {"&"}, token.AND_NOT: {"&"},
	token.SHL: {">>"}, token.SHR: {"<<"},
}

// negated are comparisons that answer the opposite. Where the answer is also forced to true
// and to false, whatever tells one of these from the product tells the negation too.
var negated = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==", token.LSS: ">=", token.LEQ: ">", token.GTR: "<=", token.GEQ: "<",
}

// decides reports whether e is all that an if or a case asks.
func (c *collector) decides(e ast.Expr) bool {
	switch s := c.outer(1).(type) {
	case *ast.IfStmt:
		return s.Cond == e
	case *ast.CaseClause:
		return true
	}
	return false
}

// binary changes the operator of e, or drops an operand of a logical one.
func (c *collector) binary(e *ast.BinaryExpr) {
	x, y := c.text(e.X), c.text(e.Y)
	if t, ok := c.info.TypeOf(e.X).Underlying().(*types.Basic); ok && t.Info()&types.IsString != 0 && e.Op == token.ADD {
		return
	}
	for _, op := range otherOps[e.Op] {
		if !c.decides(e) || op != negated[e.Op] {
			c.replace(e, x+" "+op+" "+y)
		}
	}
	if e.Op == token.LAND || e.Op == token.LOR {
		c.replace(e, x)
		c.replace(e, y)
	}
}

// literal makes a small number one more or less.
func (c *collector) literal(e *ast.BasicLit) {
	if e.Kind != token.INT {
		return
	}
	for _, to := range neighbours(e) {
		if t, ok := c.info.TypeOf(e).Underlying().(*types.Basic); ok && t.Info()&types.IsUnsigned != 0 && to < 0 {
			continue
		}
		c.replace(e, fmt.Sprint(to))
	}
}

func neighbours(e *ast.BasicLit) []int64 {
	v, ok := constant.Int64Val(constant.MakeFromLiteral(e.Value, token.INT, 0))
	if !ok || v > 64 {
		return nil
	}
	return []int64{v + 1, v - 1}
}

// call swaps min and max, and arguments side by side that could stand for each other.
func (c *collector) call(e *ast.CallExpr) {
	if f, ok := e.Fun.(*ast.Ident); ok && c.info.Uses[f] == types.Universe.Lookup(f.Name) {
		if to := map[string]string{"min": "max", "max": "min"}[f.Name]; to != "" {
			c.replace(e, to+c.src[c.at(f.End()):c.at(e.End())])
		}
		return // the order of arguments of min and max is nothing
	}
	for i := 1; i < len(e.Args); i++ {
		a, b := e.Args[i-1], e.Args[i]
		if types.Identical(c.info.TypeOf(a), c.info.TypeOf(b)) && c.text(a) != c.text(b) && c.isValue(a) {
			c.add(e, c.exprEdit(a, c.text(b)), c.exprEdit(b, c.text(a)))
		}
	}
}

// Constants.

// constants changes numbers in a declaration of constants, for which each time everything
// must be compiled.
func (c *collector) constants(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		if strings.Contains(c.text(spec), "iota") {
			continue
		}
		ast.Inspect(spec, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.INT {
				for _, to := range neighbours(lit) {
					c.add(spec, edit{c.at(lit.Pos()), c.at(lit.End()), value, "", fmt.Sprint(to)})
					c.mutants[len(c.mutants)-1].solo = true
				}
			}
			return true
		})
	}
}

// What the operators share.

// replace adds a mutant in which text stands for e.
func (c *collector) replace(e ast.Expr, text string) { c.add(e, c.exprEdit(e, text)) }

// zero adds a mutant in which e is the zero value of its type.
func (c *collector) zero(e ast.Expr) {
	if isLiteral(e) || !c.isValue(e) || strings.HasPrefix(c.text(e), "*new(") {
		return
	}
	c.replace(e, c.zeroOf(c.info.TypeOf(e)))
}

func (c *collector) zeroOf(t types.Type) string {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		switch {
		case u.Info()&types.IsNumeric != 0:
			return "0"
		case u.Info()&types.IsString != 0:
			return `""`
		case u.Info()&types.IsBoolean != 0:
			return "false"
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Chan, *types.Signature:
		return "nil"
	case *types.Interface:
		if _, ok := t.(*types.TypeParam); !ok {
			return "nil"
		}
	}
	return "*new(" + c.typeName(t) + ")"
}

// statement adds a mutant in which text stands for s.
func (c *collector) statement(s ast.Stmt, text string) {
	c.add(s, edit{c.at(s.Pos()), c.at(s.End()), statement, "", text})
}

// add adds a mutant with edits in n.
func (c *collector) add(n ast.Node, edits ...edit) {
	lo, hi := c.context(n)
	m := &mutant{line: c.tok.Line(n.Pos()), edits: edits}
	m.from, m.to = oneLine(c.src[lo:hi]), oneLine(splice(c.src, lo, hi, edits))
	if m.to == "" {
		m.to = leftOut
	}
	// What is a part of a statement is replaced with it: its wrapper needs the whole.
	if s, ok := n.(ast.Stmt); ok {
		whole := edit{c.at(s.Pos()), c.at(s.End()), statement, "", ""}
		whole.text = splice(c.src, whole.start, whole.end, edits)
		m.edits = []edit{whole}
	}
	c.append(m)
}

func (c *collector) append(m *mutant) {
	m.file, m.fn = c.file, c.function()
	if m.to == m.from {
		m.to += " (" + strings.TrimSpace(m.edits[0].text) + ")"
	}
	c.mutants = append(c.mutants, m)
}

// exprEdit replaces e. Of a constant expression it replaces the whole: only that has the
// type which it has in use.
func (c *collector) exprEdit(e ast.Expr, text string) edit {
	for _, outer := range slices.Backward(c.stack) {
		whole, ok := outer.(ast.Expr)
		if !ok || c.info.Types[whole].Value == nil {
			break
		}
		text = c.src[c.at(whole.Pos()):c.at(e.Pos())] + text + c.src[c.at(e.End()):c.at(whole.End())]
		e = whole
	}
	ed := edit{c.at(e.Pos()), c.at(e.End()), value, c.typeName(c.info.TypeOf(e)), text}
	if c.isBool(e) {
		ed.kind = condition
	}
	return ed
}

// context returns what is shown for n: the statement that it is in, or the head of that; of
// a long one, as much around n as is not too much.
func (c *collector) context(n ast.Node) (lo, hi int) {
	lo, hi = c.at(n.Pos()), c.at(n.End())
	if _, ok := n.(ast.Stmt); ok {
		return lo, hi
	}
	for _, outer := range slices.Backward(c.stack) {
		l, h := c.at(outer.Pos()), c.at(outer.End())
		s, stop := outer.(ast.Stmt)
		if stop {
			h = l + len(c.header(s))
		}
		if len(strings.Join(strings.Fields(c.src[l:h]), " ")) > widest-4 || h < hi {
			break
		}
		lo, hi = l, h
		if stop {
			break
		}
	}
	return lo, hi
}

// header returns the text of s up to its block.
func (c *collector) header(s ast.Stmt) string {
	end := s.End()
	switch s := s.(type) {
	case *ast.IfStmt:
		end = s.Body.Lbrace
	case *ast.ForStmt:
		end = s.Body.Lbrace
	case *ast.RangeStmt:
		end = s.Body.Lbrace
	case *ast.SwitchStmt:
		end = s.Body.Lbrace
	case *ast.TypeSwitchStmt:
		end = s.Body.Lbrace
	case *ast.CaseClause:
		end = s.Colon + 1
	case *ast.CommClause:
		end = s.Colon + 1
	}
	return strings.TrimSpace(c.src[c.at(s.Pos()):c.at(end)])
}

// function names the declared function in hand.
func (c *collector) function() string {
	for _, n := range c.stack {
		if f, ok := n.(*ast.FuncDecl); ok {
			if f.Recv == nil {
				return f.Name.Name
			}
			return receiver(f.Recv.List[0].Type) + "." + f.Name.Name
		}
	}
	return "const"
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	}
	return t.(*ast.Ident).Name
}

// outer returns what encloses the node in hand, as so many steps out.
func (c *collector) outer(steps int) ast.Node { return c.stack[len(c.stack)-1-steps] }

// inList reports whether s stands among statements, and so can be put into a block.
func (c *collector) inList(s ast.Stmt) bool {
	switch parent := c.outer(1).(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != s
	}
	return false
}

func (c *collector) isBool(e ast.Expr) bool {
	b, ok := c.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// isValue reports whether e is one value, of a type that can be named.
func (c *collector) isValue(e ast.Expr) bool {
	tv := c.info.Types[e]
	_, several := tv.Type.(*types.Tuple)
	return tv.IsValue() && !several && !tv.IsNil()
}

func (c *collector) isField(key ast.Expr) bool {
	id, ok := key.(*ast.Ident)
	if !ok {
		return false
	}
	v, ok := c.info.Uses[id].(*types.Var)
	return ok && v.IsField()
}

// isLiteral reports whether e is a literal, or nil, true, false.
func isLiteral(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return e.Name == "nil" || e.Name == "true" || e.Name == "false"
	case *ast.CompositeLit:
		return len(e.Elts) == 0
	}
	return false
}

func (c *collector) typeName(t types.Type) string {
	return types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == c.pkg {
			return ""
		}
		return p.Name()
	})
}

func (c *collector) at(p token.Pos) int { return c.tok.Offset(p) }

func (c *collector) text(n ast.Node) string { return c.src[c.at(n.Pos()):c.at(n.End())] }
