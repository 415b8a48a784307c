// Answers that came with the page, by their addresses. They tell how things were when it was sent:
// only what is asked at once is answered by them.
export const given = JSON.parse(document.getElementById('first')?.textContent || '{}');
