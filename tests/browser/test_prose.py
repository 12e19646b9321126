"""Model text: whatever way it arrives, its end looks the same; hostile text does nothing; frames stay short."""

from __future__ import annotations

import json
import random

import pytest

from tests.browser.scripted import ScriptedPage

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BLOCKS = (
    "# A title\n\n",
    "A paragraph with *emphasis*, `code`, [a link](https://example.org) and a\nsecond line.\n\n",
    "- one\n- two\n  - nested\n  - nested **two**\n- three\n\n",
    "1. first\n\n2. loose\n\n3. items\n\n",
    "* star\n* stars\n\n- another list\n- of dashes\n\n",
    "- [ ] to do\n- [x] done\n\n",
    "| a | b |\n| --- | ---: |\n| 1 | 2 |\n| 3 | 4 |\n| 5 | 6 |\n\n",
    "```python\ndef f():\n    return 1\n\n\nf()\n```\n\n",
    "> a quote\n> of two lines\n\n",
    "Text[^1] with a note.\n\n[^1]: The *note*.\n\n",
    "It is \\(a_1*b\\) and $x^2$.\n\n$$\n\\int_0^1 f\n$$\n\n",
    "Line ends\r\nof another\r\nkind.\r\n\r\n",
    "Refers to [ref].\n\n[ref]: https://example.org/ref\n\n",
    "---\n\n",
    "    indented code\n\n",
    "Half **open and `half\n\n",
)

GROW = """async ([source, cuts]) => {
    const { GrowingText } = await import('/static/chat/playground/app/text/growing.js');
    const shown = (node) => {
        for (const code of node.querySelectorAll('[data-coloured]')) {
            delete code.dataset.coloured;
            code.textContent = code.textContent;
        }
        return node.innerHTML.replace(/\\s+(?=<\\/?(li|ul|ol|tr|tbody)\\b)/g, ''); // which shows nothing
    };
    const grown = document.createElement('div'), whole = document.createElement('div');
    const growing = new GrowingText(grown);
    for (const cut of cuts) growing.show(source.slice(0, cut), false);
    growing.show(source, true);
    new GrowingText(whole).show(source, true);
    const isDrawn = (node) => !node.ariaBusy && !node.querySelector('.formula:not(.is-typeset)');
    for (let frame = 0; frame < 1000 && !(isDrawn(grown) && isDrawn(whole)); frame += 1) {
        await new Promise(requestAnimationFrame);
    }
    return [shown(grown), shown(whole)];
}"""


@pytest.fixture
def page(scripted: ScriptedPage):
    return scripted.sign_in()


@pytest.mark.parametrize("seed", range(12))
def test_a_text_that_has_grown_looks_like_one_that_came_whole(page, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    source = "".join(chance.choices(BLOCKS, k=6))
    cuts = sorted(chance.sample(range(len(source)), k=min(len(source), 60)))
    grown, whole = page.evaluate(GROW, [source, cuts])
    assert grown == whole


@pytest.mark.parametrize(
    "source",
    [
        "- one\n- two\n1. another list\n2. of numbers\n\ntext",
        "- one\n- two\n# A title\n\ntext",
        "- one\n- two\n---\n\ntext",
        "- one\n- two\n```\ncode\n```\n",
        "- one\n- two\n> a quote\n",
        "1. one\n2. two\n- a dash\n- a dash more\n",
        "| a |\n| - |\n| 1 |\n| 2 |\n# A title\n\ntext",
        "| a |\n| - |\n| 1 |\n| 2 |\n- a list\n- of two\n",
        "| a |\n| - |\n| 1 |\n| 2 |\n\n| b |\n| - |\n| 3 |\n",
    ],
)
def test_a_list_whose_last_line_turns_out_to_be_another_block_is_cut_there(page, source: str) -> None:
    grown, whole = page.evaluate(GROW, [source, list(range(1, len(source) + 1))])
    assert grown == whole


def test_what_is_finished_is_neither_parsed_nor_drawn_again(page) -> None:
    """Long lists and tables were parsed anew in each frame, 36 of which took more than 50 ms."""
    counts = page.evaluate(
        """async () => {
        const { GrowingText } = await import('/static/chat/playground/app/text/growing.js');
        const node = document.createElement('div');
        document.body.append(node);
        const growing = new GrowingText(node);
        const most = { list: 0, table: 0 };
        const kinds = [
            ['list', '', (n) => `- item ${n}\\n`],
            ['table', '| a | b |\\n| --- | --- |\\n', (n) => `| ${n} | x |\\n`],
        ];
        for (const [kind, head, row] of kinds) {
            let text = head;
            growing.show('', false);
            for (let n = 0; n < 300; n += 1) {
                text += row(n);
                const watch = new MutationObserver(() => {});
                watch.observe(node, { childList: true, subtree: true });
                growing.show(text, false);
                const num = watch.takeRecords().reduce((sum, record) => sum + record.addedNodes.length, 0);
                most[kind] = Math.max(most[kind], num);
                watch.disconnect();
            }
            most[`${kind}Rows`] = node.querySelectorAll('li, tbody tr').length;
        }
        node.remove();
        return most;
    }"""
    )
    assert counts["listRows"] == 300
    assert counts["tableRows"] == 300
    assert counts["list"] < 12
    assert counts["table"] < 12


def test_what_is_selected_stays_selected_at_the_end_of_the_answer(scripted: ScriptedPage, page) -> None:
    scripted.ask("hello")
    run = scripted.next("start")["id"]
    scripted.say(run, "A first paragraph.\n\n- one\n- two\n- three\n\nThe end")
    page.wait_for_selector(".block:has-text('The end')")
    page.evaluate(
        """() => {
        const range = document.createRange();
        range.selectNodeContents(document.querySelector('.block'));
        getSelection().removeAllRanges();
        getSelection().addRange(range);
    }"""
    )
    scripted.say(run, " of it.")
    scripted.end(run)
    page.wait_for_selector(".message-counters:has-text('tokens')")
    assert page.evaluate("getSelection().toString().trim()") == "A first paragraph."


HOSTILE = (
    "<script>window.hit=1</script>",
    '<img src=x onerror="window.hit=1">',
    "[x](javascript:window.hit=1)",
    "[x](JaVaScRiPt&colon;window.hit=1)",
    "[x](data:text/html,<script>window.hit=1</script>)",
    "![i](https://127.0.0.1:9/x.png)",
    '<svg onload="window.hit=1"><animate onbegin="window.hit=1"></svg>',
    "<iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    '<a href="x" onclick="window.hit=1">x</a><form action=/sign-out method=post><input type=submit></form>',
    '```"><img src=x onerror=window.hit=1>\ncode\n```',
    "$\\href{javascript:window.hit=1}{x}$ \\(\\includegraphics{http://127.0.0.1:9/x.png}\\) $\\htmlData{a=b}{x}$",
    '[^"><img src=x onerror=window.hit=1>]\n\n[^1]: <img src=x onerror=window.hit=1>',
    "| <img src=x onerror=window.hit=1> | b |\n| --- | --- |\n| <script>window.hit=1</script> | [x](javascript:x) |",
    "- [ ] <input onfocus=window.hit=1 autofocus>\n- <details open ontoggle=window.hit=1>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=1>",
    "```html\n<script>window.hit=1</script>\n```",
)


def test_hostile_text_that_arrives_by_single_characters_does_nothing(scripted: ScriptedPage, page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    source = "\n\n".join(HOSTILE)
    hit = page.evaluate(
        """async (source) => {
        const { GrowingText } = await import('/static/chat/playground/app/text/growing.js');
        const node = document.createElement('div');
        document.body.append(node);
        const growing = new GrowingText(node);
        for (let at = 1; at <= source.length; at += 1) growing.show(source.slice(0, at), false);
        growing.show(source, true);
        await new Promise((done) => setTimeout(done, 500));
        const all = (selector) => [...node.querySelectorAll(selector)];
        const named = all('script, img, iframe, svg, form, style, link, object');
        const bad = named.filter((found) => !found.closest('.katex'));
        const addresses = all('a[href]').map((link) => link.getAttribute('href'));
        const links = addresses.filter((href) => !/^(https?:|mailto:)/.test(href));
        const isHandler = ({ name }) => name.startsWith('on');
        const handlers = all('*').filter((found) => [...found.attributes].some(isHandler));
        node.remove();
        return [window.hit ?? null, bad.length, links, handlers.length];
    }""",
        source,
    )
    assert hit == [None, 0, [], 0], json.dumps(hit)
    assert [url for url in asked if not url.startswith((scripted.base_url, "blob:"))] == []


def test_the_end_of_an_answer_draws_nothing_of_it_again(page) -> None:
    """A long list was parsed and drawn once more when it ended, which held the page up."""
    numbers = page.evaluate(
        """async () => {
        const { GrowingText } = await import('/static/chat/playground/app/text/growing.js');
        const node = document.createElement('div');
        const growing = new GrowingText(node);
        const parts = ['A *title*.\\n\\n', '| a |\\n| - |\\n', '| 1 |\\n', '| 2 |\\n', '\\n'];
        for (let n = 0; n < 200; n += 1) parts.push(`- item **${n}**\\n`);
        let text = '';
        for (const part of parts) growing.show((text += part), false);
        const watch = new MutationObserver(() => {});
        watch.observe(node, { childList: true, subtree: true, characterData: true });
        growing.show(text, true);
        return [watch.takeRecords().length, node.querySelectorAll('li, tbody tr').length];
    }"""
    )
    assert numbers == [0, 202]


def test_a_long_text_is_drawn_in_slices(page) -> None:
    """An answer of 200 kB held the page up for 186 ms."""
    kinds = page.evaluate(
        """async () => {
        const { GrowingText } = await import('/static/chat/playground/app/text/growing.js');
        const rows = (row) => Array.from({ length: 8000 }, (_, n) => row(n)).join('');
        const texts = {
            paragraphs: [rows((n) => `Paragraph *${n}* of some words.\\n\\n`), 'p'],
            list: [rows((n) => `- item **${n}** of some words\\n`), 'li'],
            table: ['| a | b |\\n| --- | --- |\\n' + rows((n) => `| ${n} | **x** |\\n`), 'tbody tr'],
        };
        const kinds = {};
        for (const [kind, [text, tag]] of Object.entries(texts)) {
            const node = document.createElement('div');
            new GrowingText(node).show(text, true);
            const atOnce = node.querySelectorAll(tag).length;
            while (node.querySelectorAll(tag).length < 8000) await new Promise(requestAnimationFrame);
            kinds[kind] = [atOnce < 4000, node.querySelectorAll(tag).length, node.children.length];
        }
        return kinds;
    }"""
    )
    assert kinds == {"paragraphs": [True, 8000, 8000], "list": [True, 8000, 1], "table": [True, 8000, 1]}


def test_texts_of_a_frame_share_its_time_and_show_their_source_meanwhile(page) -> None:
    """Each had its own time, so that an opened chat held the page up; none may be missing in a frame."""
    found = page.evaluate(
        """async () => {
        const { GrowingText } = await import('/static/chat/playground/app/text/growing.js');
        const text = '- item **of** some `words`\\n'.repeat(100);
        const nodes = Array.from({ length: 200 }, () => document.createElement('div'));
        for (const node of nodes) {
            node.textContent = text;
            new GrowingText(node).show(text, true);
        }
        const drawn = () => nodes.filter((node) => node.querySelector('li')).length;
        const atOnce = drawn();
        const shown = nodes.filter((node) => node.textContent.includes('item')).length;
        for (let frame = 0; frame < 2000 && nodes.some((node) => node.ariaBusy); frame += 1) {
            await new Promise(requestAnimationFrame);
        }
        return [atOnce < 200, shown, drawn(), nodes.filter((node) => node.textContent.includes('**')).length];
    }"""
    )
    assert found == [True, 200, 200, 0]


def test_where_an_extension_may_begin_is_looked_for_nearby(page) -> None:
    """Each paragraph looked through all the rest of the answer: one of 200 kB took a second to parse."""
    found = page.evaluate(
        """async () => {
        const { startInLine, startOfBlock } = await import('/static/chat/playground/app/text/starts.js');
        const [line, block] = [startInLine(/\\$/), startOfBlock(/\\n\\$\\$/)];
        return [line('word '.repeat(1e5)), line('a $b$'), line('a'), block('a\\n$$b'), block('a\\n\\n$$b')];
    }"""
    )
    assert found == [399, 2, None, 1, None]
