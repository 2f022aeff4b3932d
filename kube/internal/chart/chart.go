// Package chart is what the pictures of this module share: a font, a width, and the colors of
// those who are compared.
package chart

import (
	"bytes"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Width is that of a README.
const Width = 8.5 * vg.Inch

// A contestant has one color in all pictures.
var (
	Ours     = color.RGBA{R: 0x1a, G: 0x7f, B: 0x37, A: 0xff}
	ClientGo = color.RGBA{R: 0x32, G: 0x6c, B: 0xe5, A: 0xff}
	Grey     = color.RGBA{R: 0x57, G: 0x60, B: 0x6a, A: 0xff} // no contestant
)

// UseFont sets plot's default font, which all plots made after it have. It must not run while
// another goroutine makes or draws one.
func UseFont() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

// SVG returns what drawing writes, which is SVG in the font of UseFont, with fonts that are
// like it for those who do not have it.
func SVG(drawing io.WriterTo) ([]byte, error) {
	var svg bytes.Buffer
	if _, err := drawing.WriteTo(&svg); err != nil {
		return nil, err
	}
	const face = "font-family:Liberation Sans"
	return bytes.ReplaceAll(svg.Bytes(), []byte(face), []byte(face+",Arial,Helvetica,sans-serif")), nil
}
