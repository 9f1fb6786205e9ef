package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

const pngMagic = "\x89PNG\r\n\x1a\n"

func picture(magic string, size int) string {
	return base64.StdEncoding.EncodeToString([]byte(magic + strings.Repeat("x", size-len(magic))))
}

// coder is a platform that has only the end of an execution.
type coder struct {
	Platform
	events []api.CodeEvent
	req    api.RunCode
}

func (c *coder) RunCode(_ context.Context, _ string, req api.RunCode, event func(api.CodeEvent) error) error {
	c.req = req
	for _, e := range c.events {
		if err := event(e); err != nil {
			return err
		}
	}
	return nil
}

func shown(o ...api.CodeOutput) *coder {
	c := &coder{}
	for _, x := range o {
		c.events = append(c.events, api.CodeEvent{Type: "result", Result: &x})
	}
	return c
}

func runIn(t *testing.T, c *coder) (codeOutput, string, []*sdk.ImageContent) {
	t.Helper()
	out, content, err := runCode(t.Context(), Caller{Platform: c}, "x", codeInput{Code: "1"})
	if err != nil {
		t.Fatal(err)
	}
	var images []*sdk.ImageContent
	for _, x := range content[1:] {
		images = append(images, x.(*sdk.ImageContent))
	}
	return out, content[0].(*sdk.TextContent).Text, images
}

// TestRunCodePictures: pictures are content of the result, and what is none, or
// too much, is named instead.
func TestRunCodePictures(t *testing.T) {
	t.Parallel()
	out, text, images := runIn(t, shown(
		api.CodeOutput{Text: "<Figure>", PNG: picture(pngMagic, 1000), HTML: "<b>"},
		api.CodeOutput{JPEG: picture("\xff\xd8\xff", 10)},
		api.CodeOutput{PNG: picture("GIF89a", 100)},
		api.CodeOutput{PNG: "not base64!"},
		api.CodeOutput{PNG: picture(pngMagic, maxImage+1)},
		api.CodeOutput{PNG: picture(pngMagic, maxImage)},
	))
	if len(images) != 3 || images[0].MIMEType != "image/png" || len(images[0].Data) != 1000 || images[1].MIMEType != "image/jpeg" || len(images[2].Data) != maxImage {
		t.Fatalf("%d images", len(images))
	}
	if r := out.Results; r[0].Image != "image/png" || r[0].Text != "<Figure>" || len(r[0].Omitted) != 1 || r[2].Image != "" || len(r[2].Omitted) != 1 || len(r[3].Omitted) != 1 || len(r[4].Omitted) != 1 {
		t.Errorf("%+v", out.Results)
	}
	if !strings.Contains(text, "[image/png] <Figure>") || !strings.Contains(text, "left out: html (3 bytes)") || !strings.Contains(text, "left out: png (10") {
		t.Error(text)
	}
	var many []api.CodeOutput
	for range 8 {
		many = append(many, api.CodeOutput{PNG: picture(pngMagic, maxImage)})
	}
	if _, _, images := runIn(t, shown(many...)); len(images) != maxImages/maxImage {
		t.Errorf("%d images of 1 MiB", len(images))
	}
}

// TestRunCodeBounds: however much code writes and shows, a result has a size, and
// says what is missing.
func TestRunCodeBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\u2603", 100_000)
	c := &coder{}
	for i := range 200 {
		c.events = append(c.events, api.CodeEvent{Type: "stdout", Text: long}, api.CodeEvent{Type: "stderr", Text: long},
			api.CodeEvent{Type: "result", Result: &api.CodeOutput{Text: fmt.Sprint(i) + long, Chart: api.JSON(`"` + long + `"`), Markdown: long}})
	}
	c.events = append(c.events, api.CodeEvent{Type: "exception", Exception: &api.CodeError{Name: long, Value: long, Traceback: long}}, api.CodeEvent{Type: "end", TimedOut: true})
	out, text, _ := runIn(t, c)
	if len(text) > 256<<10 || out.ResultsOmitted != 150 || len(out.Results) != 50 || out.StdoutOmitted == 0 || out.StderrOmitted == 0 {
		t.Errorf("%d bytes of text, %d results, %d left out", len(text), len(out.Results), out.ResultsOmitted)
	}
	for _, want := range []string{"bytes left out", "[150 more values left out]", "[interrupted: ", "left out: chart (300002 bytes)", "[error] "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said", want)
		}
	}
	if c.req.TimeoutMS != defaultTimeout*1000 {
		t.Errorf("the timeout is %d ms", c.req.TimeoutMS)
	}
}

// TestRunCodeRefusals: what cannot be is refused before anything is asked.
func TestRunCodeRefusals(t *testing.T) {
	t.Parallel()
	for _, in := range []codeInput{{Timeout: -1}, {Timeout: maxTimeout + 1}, {ContextID: "x", Language: "python"}} {
		if _, _, err := runCode(t.Context(), Caller{}, "x", in); api.CodeOf(err) != api.CodeInvalidRequest {
			t.Errorf("%+v: %v", in, err)
		}
	}
}

// FuzzRunCode: no value of a sandbox makes a result too large or not text.
func FuzzRunCode(f *testing.F) {
	f.Add("text", "<b>", picture(pngMagic, 64), `{"type":"line"}`, "Traceback")
	f.Add("\xff\x00", "", "\n", "", "\x1b[31m")
	f.Fuzz(func(t *testing.T, text, html, png, chart, trace string) {
		c := shown(api.CodeOutput{Text: text, HTML: html, PNG: png, JPEG: html, Chart: api.JSON(chart), Markdown: html, LaTeX: text})
		c.events = append(c.events, api.CodeEvent{Type: "exception", Exception: &api.CodeError{Name: text, Value: html, Traceback: trace}})
		_, said, images := runIn(t, c)
		if len(said) > 256<<10 || strings.ToValidUTF8(said, "?") != said {
			t.Errorf("%d bytes: %.100q", len(said), said)
		}
		for _, i := range images {
			if len(i.Data) > maxImage {
				t.Errorf("a picture of %d bytes", len(i.Data))
			}
		}
	})
}
